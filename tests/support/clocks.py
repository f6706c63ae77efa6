"""A clock and a boot of one's own for a process: its wall clock is off by what the test says, its monotonic one is
right, and the machine has been booted as often as the test says.

Owns a small library in C that is loaded before libc (LD_PRELOAD), the file in which it reads by how much, and the one
that is read in place of the kernel's id of the boot.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long long *off;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("SHIFTED_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file >= 0) {
        void *found = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) off = found;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, now);
    if (!done && off && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *off;
    return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int done = real(now, zone);
    if (!done && off) now->tv_sec += *off;
    return done;
}

static const char *of_this_boot(const char *path) {
    const char *other = getenv("SHIFTED_BOOT");
    return other && path && !strcmp(path, "/proc/sys/kernel/random/boot_id") ? other : path;
}

#define OPEN(name)                                                        \
    int name(const char *path, int flags, ...) {                          \
        static int (*real)(const char *, int, ...);                       \
        if (!real) real = dlsym(RTLD_NEXT, #name);                        \
        mode_t mode = 0;                                                  \
        if (flags & (O_CREAT | __O_TMPFILE)) {                            \
            va_list more;                                                 \
            va_start(more, flags);                                        \
            mode = va_arg(more, mode_t);                                  \
            va_end(more);                                                 \
        }                                                                 \
        return real(of_this_boot(path), flags, mode);                     \
    }
OPEN(open)
OPEN(open64)

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
"""


def shifted_clock(folder: Path) -> Path | None:
    """The library; None where there is no C compiler."""
    if shutil.which("gcc") is None:
        return None
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_SOURCE)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


class Clock:
    """By how many seconds the wall clock of a process is off; ``shift`` may be called while it runs. ``boot`` is how
    often its machine was booted: processes that start from then on see it."""

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(bytes(8))
        self._booted = file.with_name(f"{file.name}.boot")
        self._boots = 0
        self.boot_id = ""
        self.boot()
        self._library = library
        self._file = file
        with file.open("r+b") as opened:
            self._off = mmap.mmap(opened.fileno(), 8)

    def env(self) -> dict[str, str]:
        """What the process needs."""
        return {
            "LD_PRELOAD": str(self._library),
            "SHIFTED_CLOCK": str(self._file),
            "SHIFTED_BOOT": str(self._booted),
        }

    def boot(self) -> None:
        """The machine is booted, the first time or again."""
        self._boots += 1
        self.boot_id = f"b0010000-0000-0000-0000-{self._boots:012}"
        self._booted.write_text(f"{self.boot_id}\n")

    def shift(self, seconds: int) -> None:
        """Let the clock jump."""
        self._off[:] = struct.pack("=q", seconds)

    def close(self) -> None:
        """End it."""
        self._off.close()
