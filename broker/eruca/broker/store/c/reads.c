/* What a pull takes, in C: the units of a queue that are wanted, and the records that they point at. */
#include "parts.h"

enum { TAKEN_MAX = 256 * 1024, LARGE_FROM = 64 * 1024, LARGE = 2048 };

static int64_t get64(Bytes p) { return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4)); }

static int is_wanted(Bytes code, Text codes) {
    for (Size n = 0; n < codes.size; n += 8)
        if (!memcmp(codes.at + n, code, 8)) return 1;
    return codes.at == NULL;
}

const char take_doc[] = "Copy the records that a queue's units point at, as far as they are wanted.";

PyObject *take(PyObject *self, PyObject *args) {
    Text units, codes;
    Py_buffer memory;
    Size most, room, scanned = 0, count = 0, size = 0;
    long long start, from, to;
    PyObject *found = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y#z#nny*LLL", &units.at, &units.size, &codes.at, &codes.size, &most, &room, &memory,
                          &start, &from, &to))
        return NULL;
    if (start < 0 || from < start || to > start + memory.len || units.size % UNIT || codes.size % 8) goto none;
    for (; scanned < units.size / UNIT; scanned++) {
        Bytes unit = units.at + scanned * UNIT;
        if (!is_wanted(unit + 12, codes)) continue;
        int64_t position = get64(unit);
        int32_t length = (int32_t)get32(unit + 8);
        if (length <= 0 || position < from || position > to || length > to - position) goto none;
        if (count && (count >= most || length > room - size)) break;
        count++;
        size += length;
        /* Large records are better sent from where they lie, unless that is a copy, which nobody may write to. */
        if (size > TAKEN_MAX || (!memory.readonly && size > LARGE_FROM && size > count * LARGE)) goto none;
    }
    if (!(found = PyBytes_FromStringAndSize(NULL, size))) goto end;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(found);
    for (Size n = 0; n < scanned; n++) {
        Bytes unit = units.at + n * UNIT;
        if (is_wanted(unit + 12, codes))
            at = put(at, (Bytes)memory.buf + (get64(unit) - start), (int32_t)get32(unit + 8));
    }
    result = Py_BuildValue("(Onn)", found, count, scanned);
    goto end;
none:
    result = Py_NewRef(Py_None);
end:
    PyBuffer_Release(&memory);
    Py_XDECREF(found);
    return result;
}
