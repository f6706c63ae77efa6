/* Commits of transactions in C: half messages are read from the log's memory; their real messages, and behind each one
 * the op message that closes it, are written to the log's end. */
#include "text.h"

enum { COMMIT = 8, ID_DIGITS = 9 };

typedef struct {
    PyObject *known, *pending, *op_queue, *op_properties;
    Text half_topic; /* without its length */
    int64_t half_queue_id, base, low, first, position, limit;
    Size max_body, max_record;
    uint8_t *memory;
    Common op; /* of op messages */
} State;

typedef struct {
    Bytes head;
    Text born_host, body, properties;
    int64_t queue_offset, position;
} Half;

/* ---- half messages */

/* Read the half message at a place; 0 where there is none that is whole and unchanged, or for an error. */
static int read_half(const State *s, PyObject *place, Half *half) {
    if (!PyTuple_Check(place) || PyTuple_Size(place) != HALF_FIELDS)
        return PyErr_SetString(PyExc_TypeError, "commits takes places of half messages"), 0;
    int64_t queue_offset = number_at(place, HALF_QUEUE_OFFSET), position = number_at(place, HALF_POSITION);
    int64_t size = number_at(place, HALF_SIZE);
    if (PyErr_Occurred() || position < s->low || position > s->first || size > s->first - position) return 0;
    if (size < RECORD_MIN) return 0;
    Bytes p = s->memory + (position - s->base);
    if (get32(p + 4) != 0xDAA320A7u || !is_own(p, size, position, s->half_topic, s->half_queue_id, queue_offset)) return 0;
    Size born = p[39] & 0x10 ? 20 : 8, head = 80 + born + (p[39] & STORE_HOST_V6 ? 12 : 0);
    Text body = {p + head, get32(p + head - 4)};
    Bytes properties = body.at + body.size + 1 + s->half_topic.size + 2;
    *half = (Half){p, {p + 48, born}, body, {properties, p + size - properties}, queue_offset, position};
    return 1;
}

/* The queue that a half message names at the end of its properties. NULL where it names none there, where the
 * message may have to wait, and where the queue is not known, or for an error. */
static PyObject *real_queue(const State *s, Text in) {
    Size at = -1;
    if (FIND(in, 0, "TIMER_D") >= 0 || in.size > PROPERTIES_MAX) return NULL;
    for (Size n = FIND(in, 0, "\2REAL_TOPIC\1"); n >= 0; n = FIND(in, n + 1, "\2REAL_TOPIC\1")) at = n;
    if (at < 0) return NULL;
    Bytes start = in.at + at + 12, end = in.at + in.size, stop = memchr(start, 2, end - start);
    if (!stop || stop == start || !same(stop, end - stop, (Text){(Bytes)"\2REAL_QID\1", 10})) return NULL;
    Text topic = {start, stop - start}, number = {stop + 10, end - stop - 10};
    int64_t queue_id;
    if (memchr(topic.at, 1, topic.size) || !is_utf8(topic) || number.size > ID_DIGITS ||
        !digits(number.at, number.size, &queue_id))
        return NULL;
    PyObject *key = Py_BuildValue("(s#L)", topic.at, topic.size, (long long)queue_id);
    PyObject *queue = key ? PyDict_GetItemWithError(s->known, key) : NULL;
    Py_XDECREF(key);
    return Py_XNewRef(queue);
}

/* ---- the records of one commit */

/* Write a record at the log's end, where there is room for it; takes over the reference to `properties`. */
static int append(State *s, PyObject *queue, const Common *c, uint32_t flag, int64_t next, Text body, Size size,
                  PyObject *properties) {
    put_record(s->memory + (s->position - s->base), size, c, flag, next, s->position, body, text_of(properties));
    if (!add_request(s->pending, queue, s->position, size, properties, next, c)) return 0;
    s->position += size;
    return set_long(queue, NEXT_OFFSET, next + 1);
}

/* Commit a half message; 0, with nothing written, for one that needs a closer look, or for an error. */
static int commit(State *s, const Half *half, PyObject *queue, PyObject *tail) {
    if (!PyBytes_Check(tail)) return PyErr_SetString(PyExc_TypeError, "a queue's topic_tail is bytes"), 0;
    Bytes head = half->head;
    Common real = {
        .born_host = half->born_host,
        .store_host = s->op.store_host,
        .tail = text_of(tail),
        .born = get64(head + 40),
        .now = s->op.now,
        .sys_flag = ((int32_t)get32(head + 36) & ~(STORE_HOST_V6 | TRANSACTION)) | COMMIT | (s->op.sys_flag & STORE_HOST_V6),
        .reconsume = get32(half->body.at - 16),
        .prepared = half->position,
    };
    char number[24];
    Text op_body = {(Bytes)number, sprintf(number, "%lld", (long long)half->queue_offset)};
    Size size = head_size(&real) + half->body.size + real.tail.size + 2 + half->properties.size;
    Size op_size = head_size(&s->op) + op_body.size + s->op.tail.size + 2 + PyBytes_Size(s->op_properties);
    if (half->body.size > s->max_body || size > s->max_record || size + op_size > s->limit - s->position) return 0;
    int64_t next;
    if (!long_of(queue, QUEUE_ID, &real.queue_id) || !long_of(queue, NEXT_OFFSET, &next)) return 0;
    PyObject *stored = PyBytes_FromStringAndSize((const char *)half->properties.at, half->properties.size);
    return stored && append(s, queue, &real, get32(head + 16), next, half->body, size, stored) &&
           long_of(s->op_queue, NEXT_OFFSET, &next) &&
           append(s, s->op_queue, &s->op, 0, next, op_body, op_size, Py_NewRef(s->op_properties));
}

/* Commit the half message at a place, as `commit`. */
static int commit_at(State *s, PyObject *place) {
    Half half;
    if (!read_half(s, place, &half)) return 0;
    PyObject *queue = real_queue(s, half.properties), *tail = queue ? PyObject_GetAttr(queue, TOPIC_TAIL) : NULL;
    int done = tail && commit(s, &half, queue, tail);
    Py_XDECREF(queue);
    Py_XDECREF(tail);
    return done;
}

/* Take back the requests from number `begin` on, and the queue offsets of their records. */
static void take_back(PyObject *pending, Size begin) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (Size n = PyList_Size(pending); n-- > begin;) {
        PyObject *work = PyList_GetItem(pending, n);
        PyObject_SetAttr(PyTuple_GetItem(work, REQUEST_QUEUE), NEXT_OFFSET, PyTuple_GetItem(work, REQUEST_QUEUE_OFFSET));
    }
    PyList_SetSlice(pending, begin, PyList_Size(pending), NULL);
    PyErr_Restore(type, value, trace);
}

/* ---- the function */

/* Read a Tip and a CommitForm, except for what comes from attributes of queues; 0 with an error for anything else. */
static int read_state(State *s, PyObject *tip, PyObject *form, Py_buffer *memory, Size *at) {
    *s = (State){0};
    if (!PyTuple_Check(tip) || PyTuple_Size(tip) != TIP_FIELDS || !PyTuple_Check(form) ||
        PyTuple_Size(form) != COMMIT_FIELDS || !PyDict_Check(PyTuple_GetItem(tip, TIP_QUEUES)) ||
        !PyList_Check(PyTuple_GetItem(tip, TIP_PENDING)) ||
        !PyBytes_Check(PyTuple_GetItem(form, COMMIT_OP_PROPERTIES)) ||
        !PyBytes_Check(PyTuple_GetItem(form, COMMIT_BORN_HOST)) ||
        !PyBytes_Check(PyTuple_GetItem(form, COMMIT_STORE_HOST)))
        return PyErr_SetString(PyExc_TypeError, "commits takes a Tip and a CommitForm"), 0;
    s->known = PyTuple_GetItem(tip, TIP_QUEUES);
    s->pending = PyTuple_GetItem(tip, TIP_PENDING);
    s->op_queue = PyTuple_GetItem(form, COMMIT_OP_QUEUE);
    s->op_properties = PyTuple_GetItem(form, COMMIT_OP_PROPERTIES);
    s->first = s->position = number_at(tip, TIP_POSITION);
    s->limit = number_at(tip, TIP_LIMIT);
    s->max_body = number_at(tip, TIP_MAX_BODY);
    s->max_record = number_at(tip, TIP_MAX_RECORD);
    s->op = (Common){
        .born_host = text_of(PyTuple_GetItem(form, COMMIT_BORN_HOST)),
        .store_host = text_of(PyTuple_GetItem(form, COMMIT_STORE_HOST)),
        .born = number_at(form, COMMIT_BORN),
        .now = number_at(tip, TIP_NOW),
        .sys_flag = number_at(form, COMMIT_SYS_FLAG),
    };
    *at = number_at(tip, TIP_AT);
    return !PyErr_Occurred() && PyObject_GetBuffer(PyTuple_GetItem(tip, TIP_MEMORY), memory, PyBUF_WRITABLE) == 0;
}

const char commits_doc[] = "Store the real messages of half messages, and the op messages that close them.";

PyObject *commits(PyObject *self, PyObject *args) {
    PyObject *halves, *tip, *form, *half_queue, *half_tail = NULL, *op_tail = NULL, *result = NULL;
    Py_buffer memory;
    long long low;
    Size at, count = 0;
    State state, *s = &state;
    if (!PyArg_ParseTuple(args, "O!LOO", &PyList_Type, &halves, &low, &tip, &form) ||
        !read_state(s, tip, form, &memory, &at))
        return NULL;
    const Size begin = PyList_Size(s->pending);
    half_queue = PyTuple_GetItem(form, COMMIT_HALF_QUEUE);
    half_tail = PyObject_GetAttr(half_queue, TOPIC_TAIL);
    op_tail = PyObject_GetAttr(s->op_queue, TOPIC_TAIL);
    if (!half_tail || !op_tail || !long_of(half_queue, QUEUE_ID, &s->half_queue_id) ||
        !long_of(s->op_queue, QUEUE_ID, &s->op.queue_id))
        goto end;
    if (!PyBytes_Check(half_tail) || !PyBytes_Size(half_tail) || !PyBytes_Check(op_tail)) {
        PyErr_SetString(PyExc_TypeError, "a queue's topic_tail is bytes");
        goto end;
    }
    s->half_topic = text_of(half_tail);
    s->half_topic.at++;
    s->half_topic.size--;
    s->op.tail = text_of(op_tail);
    s->memory = memory.buf;
    s->base = s->first - at;
    s->low = low > s->base ? low : s->base;
    if (at < 0 || at > memory.len || s->base < 0 || s->limit - s->first > memory.len - at || !host_sizes_fit(&s->op))
        s->low = INT64_MAX; /* nothing lies there */
    while (count < PyList_Size(halves) && commit_at(s, PyList_GetItem(halves, count))) count++;
    if (!PyErr_Occurred()) result = Py_BuildValue("(nL)", count, (long long)s->position);
end:
    if (!result) take_back(s->pending, begin); /* then nothing was stored */
    PyBuffer_Release(&memory);
    Py_XDECREF(half_tail);
    Py_XDECREF(op_tail);
    return result;
}
