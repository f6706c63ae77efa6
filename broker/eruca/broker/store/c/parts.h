/* What all parts of the native step need: numbers and texts in buffers, attributes of queues, records.
 *
 * They use the limited API of Python 3.11 alone: hatch_build.py makes one module for this Python and all later ones. */
#ifndef ERUCA_PARTS_H
#define ERUCA_PARTS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef const uint8_t *Bytes;
typedef Py_ssize_t Size;
_Static_assert(sizeof(Size) == 8, "lengths of 32 bits out of frames and files are non-negative sizes");

enum { UNIT = 20, BORN = 13, PROPERTIES_MAX = 32767, RECORD_MIN = 91, TRANSACTION = 12, STORE_HOST_V6 = 0x20 };
enum { FRAME_MAX = 16 * 1024 * 1024, BATCH_MAX = FRAME_MAX / 8 };

/* The fields of the tuples that are read by position. The module offers their names as LAYOUTS, and native.py compares
 * those with layout.py. */
enum {
    REQUEST_QUEUE,
    REQUEST_POSITION,
    REQUEST_SIZE,
    REQUEST_PROPERTIES,
    REQUEST_QUEUE_OFFSET,
    REQUEST_STORE_TIME,
    REQUEST_SYS_FLAG,
    REQUEST_FIELDS
};
enum { ENTRY_HASH, ENTRY_POSITION, ENTRY_STORE_TIME, ENTRY_FIELDS };
enum { JSON_BEFORE, JSON_BETWEEN, JSON_BEFORE_OPAQUE, JSON_END, JSON_FIELDS };
enum { KIND, FLAG, BEFORE, FIRST_BEGIN, BETWEEN, SECOND_BEGIN, END, SECOND_CONSTANT, BINARY_FIELDS };
enum {
    FORM_REQUEST,
    FORM_QUEUE,
    FORM_USER_FLAG,
    FORM_SYS_FLAG,
    FORM_RECONSUME_TIMES,
    FORM_ONEWAY,
    FORM_REPLY,
    FORM_BATCH_PROPERTIES,
    FORM_BATCH_EXTRA,
    FORM_HALF_QUEUE,
    FORM_HALF_EXTRA,
    FORM_FIELDS
};
enum {
    TIP_QUEUES,
    TIP_PENDING,
    TIP_MEMORY,
    TIP_AT,
    TIP_POSITION,
    TIP_LIMIT,
    TIP_NOW,
    TIP_MAX_BODY,
    TIP_MAX_RECORD,
    TIP_FIELDS
};
enum { HOSTS_BORN, HOSTS_BITS, HOSTS_STORE, HOSTS_CLUSTER, HOSTS_FIELDS };
enum { HALF_QUEUE_OFFSET, HALF_POSITION, HALF_SIZE, HALF_FIELDS };
enum {
    COMMIT_HALF_QUEUE,
    COMMIT_OP_QUEUE,
    COMMIT_OP_PROPERTIES,
    COMMIT_SYS_FLAG,
    COMMIT_BORN,
    COMMIT_BORN_HOST,
    COMMIT_STORE_HOST,
    COMMIT_FIELDS
};

typedef struct {
    Bytes at;
    Size size;
} Text;

/* Names of attributes, and the table of crc32_of; the module fills them when it is loaded. */
extern PyObject *TAIL, *TAIL_START, *NEXT_OFFSET, *TOPIC, *QUEUE_ID, *TOPIC_TAIL, *ARRIVED, *INDEX_PREFIX;
extern uint32_t CRC[8][256];

PyObject *sends(PyObject *self, PyObject *args);
PyObject *commits(PyObject *self, PyObject *args);
PyObject *take(PyObject *self, PyObject *args);
PyObject *fetch(PyObject *self, PyObject *args);
extern const char sends_doc[], commits_doc[], take_doc[], fetch_doc[];

/* ---- numbers and texts */

static inline uint32_t get32(Bytes p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline int64_t get64(Bytes p) { return (int64_t)((uint64_t)get32(p) << 32 | get32(p + 4)); }

static inline uint8_t *put16(uint8_t *p, uint32_t v) { p[0] = v >> 8; p[1] = v; return p + 2; }

static inline uint8_t *put32(uint8_t *p, uint32_t v) { put16(put16(p, v >> 16), v); return p + 4; }

static inline uint8_t *put64(uint8_t *p, uint64_t v) { put32(put32(p, v >> 32), (uint32_t)v); return p + 8; }

static inline uint8_t *put(uint8_t *p, Bytes from, Size size) { memcpy(p, from, size); return p + size; }

static inline Text text_of(PyObject *bytes) { return (Text){(Bytes)PyBytes_AsString(bytes), PyBytes_Size(bytes)}; }

static inline int same(Bytes at, Size room, Text wanted) {
    return wanted.size <= room && !memcmp(at, wanted.at, wanted.size);
}

/* Where `wanted` occurs first in a text from `from` on; -1 where it does not. */
static inline Size find(Text in, Size from, const char *wanted, Size size) {
    for (Bytes p = in.at + from, end = in.at + in.size; end - p >= size; p++) {
        p = memchr(p, wanted[0], end - p - size + 1);
        if (!p) break;
        if (!memcmp(p, wanted, size)) return p - in.at;
    }
    return -1;
}
#define FIND(in, from, literal) find(in, from, literal, sizeof literal - 1)

/* The value of the last property with this name (0x01 included); size -1 where there is none. */
static inline Text property(Text in, const char *name, Size size) {
    Text found = {NULL, -1};
    for (Size at = find(in, 0, name, size); at >= 0; at = find(in, at + 1, name, size)) {
        if (at && in.at[at - 1] != 2) continue;
        Bytes start = in.at + at + size, end = memchr(start, 2, in.size - at - size);
        found = (Text){start, (end ? end : in.at + in.size) - start};
    }
    return found;
}

static inline uint32_t crc32_of(Bytes p, Size size) {
    uint32_t crc = ~0u;
    for (; size >= 8; p += 8, size -= 8) {
        uint32_t a = crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = CRC[7][a & 255] ^ CRC[6][a >> 8 & 255] ^ CRC[5][a >> 16 & 255] ^ CRC[4][a >> 24] ^ CRC[3][p[4]] ^
              CRC[2][p[5]] ^ CRC[1][p[6]] ^ CRC[0][p[7]];
    }
    while (size--) crc = crc >> 8 ^ CRC[0][(crc ^ *p++) & 255];
    return ~crc;
}

/* ---- attributes of queues */

static inline int long_of(PyObject *from, PyObject *name, int64_t *value) {
    PyObject *found = PyObject_GetAttr(from, name);
    if (!found) return 0;
    *value = PyLong_AsLongLong(found);
    Py_DECREF(found);
    return *value != -1 || !PyErr_Occurred();
}

static inline int set_long(PyObject *of, PyObject *name, int64_t value) {
    PyObject *number = PyLong_FromLongLong(value);
    int done = number && PyObject_SetAttr(of, name, number) == 0;
    Py_XDECREF(number);
    return done;
}

static inline long long number_at(PyObject *tuple, Size place) {
    return PyLong_AsLongLong(PyTuple_GetItem(tuple, place));
}

/* ---- records */

typedef struct {
    Text born_host, store_host, tail; /* tail: length and name of the topic */
    int64_t born, now, queue_id, sys_flag, reconsume, prepared;
} Common;

static inline Size head_size(const Common *common) { return 72 + common->born_host.size + common->store_host.size; }

/* Write a record (see protocol/record.py); there must be room for all of it. */
static inline void put_record(uint8_t *p, Size size, const Common *c, uint32_t flag, int64_t queue_offset,
                              int64_t position, Text body, Text properties) {
    p = put32(p, size);
    p = put32(p, 0xDAA320A7u);
    p = put32(p, crc32_of(body.at, body.size) & 0x7FFFFFFF);
    p = put32(p, c->queue_id);
    p = put32(p, flag);
    p = put64(p, queue_offset);
    p = put64(p, position);
    p = put32(p, c->sys_flag);
    p = put64(p, c->born);
    p = put(p, c->born_host.at, c->born_host.size);
    p = put64(p, c->now);
    p = put(p, c->store_host.at, c->store_host.size);
    p = put32(p, c->reconsume);
    p = put64(p, c->prepared);
    p = put32(p, body.size);
    p = put(p, body.at, body.size);
    p = put(p, c->tail.at, c->tail.size);
    p = put16(p, properties.size);
    put(p, properties.at, properties.size);
}

/* Note what dispatch has to do for a record (see layout.Request); takes over the reference to `properties`. */
static inline int add_request(PyObject *pending, PyObject *queue, int64_t position, Size size, PyObject *properties,
                              int64_t queue_offset, const Common *c) {
    PyObject *work = Py_BuildValue("(OLnNLLL)", queue, (long long)position, size, properties, (long long)queue_offset,
                                   (long long)c->now, (long long)c->sys_flag);
    int added = work && PyList_Append(pending, work) == 0;
    Py_XDECREF(work);
    return added;
}

static inline int host_sizes_fit(const Common *c) {
    return c->born_host.size == (c->sys_flag & 0x10 ? 20 : 8) && c->store_host.size == (c->sys_flag & 0x20 ? 20 : 8);
}

/* Whether these bytes are the whole and unchanged record of a place of the log and of a queue: `sound_record`. */
int is_own(Bytes p, Size size, int64_t position, Text topic, long long queue_id, int64_t index);

/* Write the records of a batch body at `to`, note their requests and move on `position`. How many they are; 0, with
 * nothing written, for a batch that has a fault or needs more than `room`; -1 for an error. */
Size put_batch(Text in, Text extra, const Common *c, PyObject *queue, int64_t next, uint8_t *to, int64_t *position,
               Size room, Size max_record, PyObject *pending);

#endif
