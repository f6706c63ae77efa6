/* What a pull takes, in C: the units of a queue that are wanted, and the records that they point at. */
#define _GNU_SOURCE /* preadv2 */
#include "parts.h"
#include <errno.h>
#include <sys/uio.h>

/* Records are copied together, for few buffers are cheap to send, but not more than TAKEN_MAX bytes, nor from LARGE_FROM
 * bytes on those of more than LARGE bytes on average. */
enum { TAKEN_MAX = 256 * 1024, LARGE_FROM = 64 * 1024, LARGE = 2048 };
enum { PARTS_MAX = 512, TOGETHER_MAX = 1024 * 1024, GAP = 4096 };

/* What is asked for, and what was found: how many units were looked at, records among them, their bytes. */
typedef struct {
    Text units, codes;
    Size most, room;
    long long from, to;
    Size scanned, count, size;
} Choice;

static int is_wanted(Bytes code, Text codes) {
    for (Size n = 0; n < codes.size; n += 8)
        if (!memcmp(codes.at + n, code, 8)) return 1;
    return codes.at == NULL;
}

/* The number of the next wanted unit from `number` on; `scanned` where there is none. */
static Size next_wanted(const Choice *c, Size number) {
    while (number < c->scanned && !is_wanted(c->units.at + number * UNIT + 12, c->codes)) number++;
    return number;
}

/* Find out what is taken; 0 where a record lies outside of `from` and `to`. */
static int choose(Choice *c) {
    if (c->units.size % UNIT || c->codes.size % 8) return 0;
    for (c->scanned = c->count = c->size = 0; c->scanned < c->units.size / UNIT; c->scanned++) {
        Bytes unit = c->units.at + c->scanned * UNIT;
        if (!is_wanted(unit + 12, c->codes)) continue;
        int64_t position = get64(unit);
        int32_t length = (int32_t)get32(unit + 8);
        if (c->count && (c->count >= c->most || length > c->room - c->size)) break;
        if (length <= 0 || position < c->from || position > c->to || length > c->to - position) return 0;
        c->count++;
        c->size += length;
    }
    return 1;
}

/* ---- what is in memory */

/* The records in one piece. */
static PyObject *copies(const Choice *c, const Py_buffer *memory, int64_t start) {
    PyObject *found = PyBytes_FromStringAndSize(NULL, c->size);
    if (!found) return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(found);
    for (Size n = next_wanted(c, 0); n < c->scanned; n = next_wanted(c, n + 1)) {
        Bytes unit = c->units.at + n * UNIT;
        at = put(at, (Bytes)memory->buf + (get64(unit) - start), (int32_t)get32(unit + 8));
    }
    return Py_BuildValue("([N]nnn)", found, c->count, c->scanned, c->size);
}

/* A view of each record. */
static PyObject *views(const Choice *c, const Py_buffer *memory, int64_t start) {
    PyObject *whole = PyMemoryView_FromObject(memory->obj), *found = whole ? PyList_New(c->count) : NULL;
    Size count = 0;
    for (Size n = next_wanted(c, 0); found && n < c->scanned; n = next_wanted(c, n + 1)) {
        Bytes unit = c->units.at + n * UNIT;
        Size at = get64(unit) - start;
        PyObject *view = PySequence_GetSlice(whole, at, at + (int32_t)get32(unit + 8));
        if (view) PyList_SetItem(found, count++, view);
        else Py_CLEAR(found);
    }
    Py_XDECREF(whole);
    return found ? Py_BuildValue("(Nnnn)", found, c->count, c->scanned, c->size) : NULL;
}

const char take_doc[] = "The records that a queue's units point at, as far as they are wanted.";

PyObject *take(PyObject *self, PyObject *args) {
    Choice c;
    Py_buffer memory;
    long long start;
    PyObject *result;
    if (!PyArg_ParseTuple(args, "y#z#nny*LLL", &c.units.at, &c.units.size, &c.codes.at, &c.codes.size, &c.most, &c.room,
                          &memory, &start, &c.from, &c.to))
        return NULL;
    if (start < 0 || c.from < start || c.to > start + memory.len || !choose(&c)) result = Py_NewRef(Py_None);
    else if (c.size > TAKEN_MAX || (c.size > LARGE_FROM && c.size > c.count * LARGE)) result = views(&c, &memory, start);
    else result = copies(&c, &memory, start);
    PyBuffer_Release(&memory);
    return result;
}

/* ---- what is on the disk */

/* Fill `parts` from one place of a file; 1 when all came, 0 when less did, -1 for an error in errno. */
static int fill(int fd, struct iovec *parts, int count, Size size, off_t position, int wait) {
    ssize_t done = -1;
    errno = EOPNOTSUPP;
#ifdef RWF_NOWAIT
    if (!wait) {
        done = preadv2(fd, parts, count, position, RWF_NOWAIT);
        if (done >= 0 && done < size) { errno = EAGAIN; return -1; }
    }
#endif
    if (done < 0 && errno == EAGAIN) return -1;
    if (done < 0) do done = preadv(fd, parts, count, position); while (done < 0 && errno == EINTR); /* no such flag */
    return done < 0 ? -1 : done == size;
}

/* Read the records into `to`: those with little between them together. As `fill`. */
static int read_chosen(const Choice *c, int fd, int64_t start, uint8_t *to, int wait) {
    uint8_t between[GAP];
    struct iovec parts[PARTS_MAX];
    int count = 0, done = 1;
    int64_t first = 0, end = 0;
    for (Size n = next_wanted(c, 0); n < c->scanned && done == 1; n = next_wanted(c, n + 1)) {
        int64_t position = get64(c->units.at + n * UNIT);
        Size length = (int32_t)get32(c->units.at + n * UNIT + 8), gap = position - end;
        if (count && (gap < 0 || gap > GAP || count > PARTS_MAX - 2 || end - first > TOGETHER_MAX)) {
            done = fill(fd, parts, count, end - first, first - start, wait);
            count = 0;
        }
        if (!count) first = position;
        else if (gap) parts[count++] = (struct iovec){between, gap};
        if (count && !gap) parts[count - 1].iov_len += length;
        else parts[count++] = (struct iovec){to, length};
        to += length;
        end = position + length;
    }
    return done == 1 && count ? fill(fd, parts, count, end - first, first - start, wait) : done;
}

int is_own(Bytes p, Size size, int64_t position, Text topic, long long queue_id, int64_t index) {
    if (size < RECORD_MIN || get32(p) != size || get64(p + 28) != position || get64(p + 20) != index ||
        (int32_t)get32(p + 12) != queue_id)
        return 0;
    uint32_t magic = get32(p + 4);
    int wide = magic == 0xDAA320ABu; /* its topic's length has two bytes */
    Size head = 88 + (p[39] & 0x10 ? 12 : 0) + (p[39] & 0x20 ? 12 : 0);
    if ((magic != 0xDAA320A7u && !wide) || size < head + 3) return 0;
    int32_t length = (int32_t)get32(p + head - 4);
    if (length < 0 || length > size - head - 3 - wide - topic.size) return 0;
    Bytes name = p + head + length + 1 + wide, last = name + topic.size;
    if ((wide ? name[-2] << 8 | name[-1] : name[-1]) != topic.size || memcmp(name, topic.at, topic.size)) return 0;
    if (last + 2 + (last[0] << 8 | last[1]) != p + size) return 0;
    return (crc32_of(p + head, length) & 0x7FFFFFFF) == get32(p + 8);
}

const char fetch_doc[] = "Read the wanted records out of a file; those of an earlier run are checked.";

PyObject *fetch(PyObject *self, PyObject *args) {
    Choice c;
    Text topic;
    long long start, queue_id, index, checked_from;
    int fd, wait, done = 0;
    PyObject *found;
    if (!PyArg_ParseTuple(args, "y#z#nniLLLpy#LLL", &c.units.at, &c.units.size, &c.codes.at, &c.codes.size, &c.most,
                          &c.room, &fd, &start, &c.from, &c.to, &wait, &topic.at, &topic.size, &queue_id, &index,
                          &checked_from))
        return NULL;
    if (start < 0 || c.from < start || !choose(&c)) Py_RETURN_NONE;
    if (!(found = PyBytes_FromStringAndSize(NULL, c.size))) return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AsString(found);
    if (wait) {
        Py_BEGIN_ALLOW_THREADS
        done = read_chosen(&c, fd, start, at, 1);
        Py_END_ALLOW_THREADS
    } else {
        done = read_chosen(&c, fd, start, at, 0);
    }
    if (done < 0) PyErr_SetFromErrno(PyExc_OSError);
    for (Size n = next_wanted(&c, 0); done == 1 && n < c.scanned && index + n < checked_from;) {
        Bytes unit = c.units.at + n * UNIT;
        Size length = (int32_t)get32(unit + 8);
        done = is_own(at, length, get64(unit), topic, queue_id, index + n);
        at += length;
        n = next_wanted(&c, n + 1);
    }
    if (done == 1) return Py_BuildValue("([N]nnn)", found, c.count, c.scanned, c.size);
    Py_DECREF(found);
    if (done < 0) return NULL;
    Py_RETURN_NONE;
}
