/* The native step: the work that is done for every message, in C.
 *
 * Owns no state. Each function has a counterpart in pure.py with the same name, arguments and results; native.py
 * chooses, and tests compare both. Invariant: nothing is read or written outside of the given buffers, whatever the
 * bytes say.
 */
#include "parts.h"

PyObject *TAIL, *TAIL_START, *NEXT_OFFSET, *TOPIC, *QUEUE_ID, *TOPIC_TAIL, *ARRIVED, *INDEX_PREFIX;
uint32_t CRC[8][256];

static void fill_crc(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        CRC[0][n] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int n = 0; n < 256; n++) CRC[row][n] = CRC[row - 1][n] >> 8 ^ CRC[0][CRC[row - 1][n] & 255];
}

/* ---- batches */

/* How many messages a batch body has; 0 for one with a fault, or whose records do not fit. */
static Size count_of(Text in, Size fixed, Size more, Size room, Size max_record) {
    Size count = 0;
    for (Size p = 0; p < in.size; count++) {
        if (in.size - p < 22) return 0;
        Size size = get32(in.at + p), body = get32(in.at + p + 16);
        if (size < 22 || size > in.size - p || body > size - 22) return 0;
        Size own = in.at[p + 20 + body] << 8 | in.at[p + 21 + body];
        if (22 + body + own != size || own + more > PROPERTIES_MAX || fixed + body + own + more > max_record) return 0;
        room -= fixed + body + own + more;
        if (room < 0) return 0;
        p += size;
    }
    return count;
}

Size put_batch(Text in, Text extra, const Common *c, PyObject *queue, int64_t next, uint8_t *to, int64_t *position,
               Size room, Size max_record, PyObject *pending) {
    Size fixed = head_size(c) + c->tail.size + 2;
    Size count = count_of(in, fixed, extra.size ? extra.size + 1 : 0, room, max_record);
    for (Size n = 0, p = 0; n < count; n++, p += get32(in.at + p)) {
        Text body = {in.at + p + 20, get32(in.at + p + 16)};
        Text own = {body.at + body.size + 2, body.at[body.size] << 8 | body.at[body.size + 1]};
        int apart = extra.size && own.size && own.at[own.size - 1] != 2;
        PyObject *stored = PyBytes_FromStringAndSize(NULL, own.size + apart + extra.size);
        if (!stored) return -1;
        uint8_t *more = put((uint8_t *)PyBytes_AsString(stored), own.at, own.size);
        if (apart) *more++ = 2;
        put(more, extra.at, extra.size);
        Size size = fixed + body.size + PyBytes_Size(stored);
        put_record(to, size, c, get32(in.at + p + 12), next + n, *position, body, text_of(stored));
        if (!add_request(pending, queue, *position, size, stored, next + n, c)) return -1;
        *position += size;
        to += size;
    }
    return count;
}

PyDoc_STRVAR(batch_doc, "Write the messages of a batch body into the log.");

static PyObject *batch(PyObject *self, PyObject *args) {
    PyObject *queue, *tail = NULL, *offsets = NULL, *requests = NULL, *result = NULL;
    Py_buffer memory;
    Common c;
    Text in, extra;
    Size at, room, max_record, count = 0;
    long long position, born, now, sys_flag, reconsume;
    int64_t next, end;
    if (!PyArg_ParseTuple(args, "Oy#y#w*nLnnLLy#y#LL", &queue, &in.at, &in.size, &extra.at, &extra.size, &memory, &at,
                          &position, &room, &max_record, &sys_flag, &born, &c.born_host.at, &c.born_host.size,
                          &c.store_host.at, &c.store_host.size, &reconsume, &now))
        return NULL;
    c.sys_flag = sys_flag; c.born = born; c.reconsume = reconsume; c.now = now; c.prepared = 0;
    if (!long_of(queue, QUEUE_ID, &c.queue_id) || !long_of(queue, NEXT_OFFSET, &next)) goto end;
    if (!(tail = PyObject_GetAttr(queue, TOPIC_TAIL)) || !PyBytes_Check(tail)) goto end;
    if (!(requests = PyList_New(0))) goto end;
    c.tail = text_of(tail);
    end = position;
    if (host_sizes_fit(&c) && at >= 0 && room >= 0 && at <= memory.len && room <= memory.len - at)
        count = put_batch(in, extra, &c, queue, next, (uint8_t *)memory.buf + at, &end, room, max_record, requests);
    if (count < 0) goto end;
    if (!count) {
        result = Py_NewRef(Py_None);
        goto end;
    }
    if (!(offsets = PyTuple_New(count))) goto end;
    for (Size n = 0; n < count; n++)
        PyTuple_SetItem(offsets, n, Py_NewRef(PyTuple_GetItem(PyList_GetItem(requests, n), REQUEST_POSITION)));
    result = PyTuple_Pack(2, offsets, requests);
end:
    PyBuffer_Release(&memory);
    Py_XDECREF(tail);
    Py_XDECREF(offsets);
    Py_XDECREF(requests);
    if (!result && !PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a queue's topic_tail is bytes");
    return result;
}

/* ---- dispatch */

static int is_request(PyObject *work) {
    if (PyTuple_Check(work) && PyTuple_Size(work) == REQUEST_FIELDS &&
        PyBytes_Check(PyTuple_GetItem(work, REQUEST_PROPERTIES)))
        return 1;
    PyErr_SetString(PyExc_TypeError, "dispatch takes requests");
    return 0;
}

/* Java's String.hashCode of a text in UTF-8, joined to one with the hash code `before`. Bytes that are not UTF-8 count
 * as U+FFFD, as Python's decoder replaces them. 0 for an error. */
static int hash(Text text, uint32_t before, uint32_t *value) {
    Size n = 0;
    *value = before;
    for (; n < text.size && text.at[n] < 0x80; n++) *value = *value * 31 + text.at[n];
    if (n >= text.size) return 1;
    PyObject *rest = PyUnicode_DecodeUTF8((const char *)text.at + n, text.size - n, "replace");
    if (!rest) return 0;
    Size length = PyUnicode_GetLength(rest);
    for (n = 0; n < length; n++) {
        Py_UCS4 c = PyUnicode_ReadChar(rest, n);
        if (c > 0xFFFF) { /* two UTF-16 code units */
            *value = *value * 31 + (0xD7C0 + (c >> 10));
            c = 0xDC00 | (c & 0x3FF);
        }
        *value = *value * 31 + c;
    }
    Py_DECREF(rest);
    return 1;
}

PyDoc_STRVAR(follow_doc, "Append the units of records to their queues; returns where it stopped.");

static void replace(PyObject **at, PyObject *value) {
    PyObject *before = *at;
    *at = value;
    Py_XDECREF(before);
}

static PyObject *follow(PyObject *self, PyObject *args) {
    PyObject *work, *touched, *timed, *last = NULL, *tail = NULL, *arrived = NULL;
    int64_t start = 0;
    Size at;
    int bad = 1;
    if (!PyArg_ParseTuple(args, "O!nO!O!", &PyList_Type, &work, &at, &PySet_Type, &touched, &PyTuple_Type, &timed))
        return NULL;
    if (at < 0) return PyErr_Format(PyExc_ValueError, "a request's number is 0 or more");
    for (; at < PyList_Size(work); at++) {
        PyObject *one = PyList_GetItem(work, at);
        if (!is_request(one)) goto end;
        if (number_at(one, REQUEST_SYS_FLAG) & 4) continue; /* half messages and rollbacks have no unit */
        PyObject *queue = PyTuple_GetItem(one, REQUEST_QUEUE);
        if (queue != last) {
            PyObject *topic = PyObject_GetAttr(queue, TOPIC);
            int special = topic ? PySequence_Contains(timed, topic) : -1;
            Py_XDECREF(topic);
            if (special < 0) goto end;
            if (special) break;
            replace(&tail, PyObject_GetAttr(queue, TAIL));
            replace(&arrived, PyObject_GetAttr(queue, ARRIVED));
            if (!tail || !arrived || !long_of(queue, TAIL_START, &start)) goto end;
            if (!PyByteArray_CheckExact(tail) || !PyList_CheckExact(arrived)) {
                PyErr_SetString(PyExc_TypeError, "a queue's tail is a bytearray, and its arrived a list");
                goto end;
            }
            last = queue;
        }
        Size size = PyByteArray_Size(tail);
        uint32_t code;
        Text tags = property(text_of(PyTuple_GetItem(one, REQUEST_PROPERTIES)), "TAGS\x01", 5);
        if (start + size / UNIT != number_at(one, REQUEST_QUEUE_OFFSET)) break;
        if (!hash(tags, 0, &code)) goto end;
        PyObject *number = PyLong_FromLong((int32_t)code);
        if (!number || PySet_Add(touched, queue) || PyByteArray_Resize(tail, size + UNIT)) {
            Py_XDECREF(number);
            goto end;
        }
        uint8_t *p = (uint8_t *)PyByteArray_AsString(tail) + size;
        p = put32(put64(p, number_at(one, REQUEST_POSITION)), number_at(one, REQUEST_SIZE));
        put64(p, (int64_t)(int32_t)code);
        int added = PyList_Append(arrived, number);
        Py_DECREF(number);
        if (added) goto end;
    }
    bad = PyErr_Occurred() != NULL;
end:
    Py_XDECREF(tail);
    Py_XDECREF(arrived);
    return bad ? NULL : PyLong_FromSsize_t(at);
}

static int add_entry(PyObject *entries, Text key, int64_t prefix, PyObject *work) {
    uint32_t value;
    if (key.size <= 0) return 1;
    if (!hash(key, (uint32_t)prefix, &value)) return 0;
    if (value & 0x80000000u) value = (0u - value) & 0x7FFFFFFF; /* the absolute value, or 0 */
    PyObject *position = PyTuple_GetItem(work, REQUEST_POSITION), *time = PyTuple_GetItem(work, REQUEST_STORE_TIME);
    PyObject *entry = Py_BuildValue("(kOO)", (unsigned long)value, position, time);
    int added = entry && PyList_Append(entries, entry) == 0;
    Py_XDECREF(entry);
    return added;
}

PyDoc_STRVAR(keys_doc, "The index entries of records: of each its unique key, then its business keys.");

static PyObject *keys(PyObject *self, PyObject *work) {
    if (!PyList_Check(work)) return PyErr_Format(PyExc_TypeError, "dispatch takes requests");
    PyObject *entries = PyList_New(0);
    int fine = entries != NULL;
    for (Size n = 0; fine && n < PyList_Size(work); n++) {
        PyObject *one = PyList_GetItem(work, n);
        int64_t prefix;
        if (!(fine = is_request(one))) break;
        if ((number_at(one, REQUEST_SYS_FLAG) & 12) == 12) continue; /* a rollback */
        if (!(fine = long_of(PyTuple_GetItem(one, REQUEST_QUEUE), INDEX_PREFIX, &prefix))) break;
        Text in = text_of(PyTuple_GetItem(one, REQUEST_PROPERTIES));
        fine = add_entry(entries, property(in, "UNIQ_KEY\x01", 9), prefix, one);
        Text rest = property(in, "KEYS\x01", 5);
        while (fine && rest.size > 0) {
            Bytes space = memchr(rest.at, ' ', rest.size);
            Text key = {rest.at, space ? space - rest.at : rest.size};
            fine = add_entry(entries, key, prefix, one);
            Size used = key.size + (space != NULL);
            rest = (Text){rest.at + used, rest.size - used};
        }
    }
    if (fine && !PyErr_Occurred()) return entries;
    Py_XDECREF(entries);
    return NULL;
}

PyDoc_STRVAR(index_doc, "Write entries into an index file; returns how many slots were used first.");

static PyObject *put_entries(PyObject *self, PyObject *args) {
    Py_buffer map;
    Size slots, entries_at, count;
    long long begin;
    PyObject *entries;
    long used = 0;
    if (!PyArg_ParseTuple(args, "w*nnnLO!", &map, &slots, &entries_at, &count, &begin, &PyList_Type, &entries))
        return NULL;
    uint8_t *memory = map.buf;
    Size size = PyList_Size(entries);
    if (slots < 1 || slots > (map.len - 40) / 4 || entries_at < 40 + 4 * slots || entries_at > map.len || count < 0 ||
        size > (map.len - entries_at) / UNIT - count) {
        PyErr_SetString(PyExc_ValueError, "the entries do not fit into the index file");
        goto end;
    }
    for (Size n = 0; n < size; n++, count++) {
        PyObject *one = PyList_GetItem(entries, n);
        if (!PyTuple_Check(one) || PyTuple_Size(one) != ENTRY_FIELDS) {
            PyErr_SetString(PyExc_TypeError, "an index entry is a hash, an offset and a time");
            goto end;
        }
        long long value = number_at(one, ENTRY_HASH), offset = number_at(one, ENTRY_POSITION),
                  time = number_at(one, ENTRY_STORE_TIME);
        if (PyErr_Occurred()) goto end;
        long long seconds = begin > 0 && time > begin ? (time - begin) / 1000 : 0;
        if (count <= 1) begin = time;
        uint8_t *slot = memory + 40 + (Size)((uint32_t)value % slots) * 4;
        used += get32(slot) == 0;
        uint8_t *p = put64(put32(memory + entries_at + count * UNIT, (uint32_t)value), offset);
        put(put32(p, seconds > 0x7FFFFFFF ? 0x7FFFFFFF : seconds), slot, 4);
        put32(slot, count);
    }
end:
    PyBuffer_Release(&map);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(used);
}

/* ---- the module */

static PyMethodDef methods[] = {
    {"batch", batch, METH_VARARGS, batch_doc},
    {"commits", commits, METH_VARARGS, commits_doc},
    {"fetch", fetch, METH_VARARGS, fetch_doc},
    {"follow", follow, METH_VARARGS, follow_doc},
    {"keys", keys, METH_O, keys_doc},
    {"put_entries", put_entries, METH_VARARGS, index_doc},
    {"sends", sends, METH_VARARGS, sends_doc},
    {"take", take, METH_VARARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "See native.py.", .m_size = -1, .m_methods = methods};

/* The names of the fields of tuples that are read by position, in their order. */
static const struct {
    const char *tuple, *fields[12];
    int size;
} LAYOUTS[] = {
    {"Request",
     {[REQUEST_QUEUE] = "queue",
      [REQUEST_POSITION] = "position",
      [REQUEST_SIZE] = "size",
      [REQUEST_PROPERTIES] = "properties",
      [REQUEST_QUEUE_OFFSET] = "queue_offset",
      [REQUEST_STORE_TIME] = "store_time",
      [REQUEST_SYS_FLAG] = "sys_flag"},
     REQUEST_FIELDS},
    {"IndexEntry",
     {[ENTRY_HASH] = "hash", [ENTRY_POSITION] = "position", [ENTRY_STORE_TIME] = "store_time"},
     ENTRY_FIELDS},
    {"JsonTemplate",
     {[JSON_BEFORE] = "before",
      [JSON_BETWEEN] = "between",
      [JSON_BEFORE_OPAQUE] = "before_opaque",
      [JSON_END] = "end"},
     JSON_FIELDS},
    {"BinaryTemplate",
     {[KIND] = "kind",
      [FLAG] = "flag",
      [BEFORE] = "before",
      [FIRST_BEGIN] = "first_begin",
      [BETWEEN] = "between",
      [SECOND_BEGIN] = "second_begin",
      [END] = "end",
      [SECOND_CONSTANT] = "second_constant"},
     BINARY_FIELDS},
    {"SendForm",
     {[FORM_REQUEST] = "request",
      [FORM_QUEUE] = "queue",
      [FORM_USER_FLAG] = "flag",
      [FORM_SYS_FLAG] = "sys_flag",
      [FORM_RECONSUME_TIMES] = "reconsume_times",
      [FORM_ONEWAY] = "oneway",
      [FORM_REPLY] = "reply",
      [FORM_BATCH_PROPERTIES] = "batch_properties",
      [FORM_BATCH_EXTRA] = "batch_extra",
      [FORM_HALF_QUEUE] = "half_queue",
      [FORM_HALF_EXTRA] = "half_extra"},
     FORM_FIELDS},
    {"Tip",
     {[TIP_QUEUES] = "queues",
      [TIP_PENDING] = "pending",
      [TIP_MEMORY] = "memory",
      [TIP_AT] = "at",
      [TIP_POSITION] = "position",
      [TIP_LIMIT] = "limit",
      [TIP_NOW] = "now",
      [TIP_MAX_BODY] = "max_body",
      [TIP_MAX_RECORD] = "max_record"},
     TIP_FIELDS},
    {"SendHosts",
     {[HOSTS_BORN] = "born",
      [HOSTS_BITS] = "bits",
      [HOSTS_STORE] = "store",
      [HOSTS_CLUSTER] = "cluster"},
     HOSTS_FIELDS},
    {"HalfPlace",
     {[HALF_QUEUE_OFFSET] = "queue_offset", [HALF_POSITION] = "position", [HALF_SIZE] = "size"},
     HALF_FIELDS},
    {"CommitForm",
     {[COMMIT_HALF_QUEUE] = "half_queue",
      [COMMIT_OP_QUEUE] = "op_queue",
      [COMMIT_OP_PROPERTIES] = "op_properties",
      [COMMIT_SYS_FLAG] = "sys_flag",
      [COMMIT_BORN] = "born_timestamp",
      [COMMIT_BORN_HOST] = "born_host",
      [COMMIT_STORE_HOST] = "store_host"},
     COMMIT_FIELDS},
};

static int add_layouts(PyObject *made) {
    PyObject *layouts = PyDict_New();
    int fine = layouts != NULL;
    for (size_t n = 0; fine && n < sizeof LAYOUTS / sizeof *LAYOUTS; n++) {
        PyObject *fields = PyTuple_New(LAYOUTS[n].size);
        for (int at = 0; fields && at < LAYOUTS[n].size; at++) {
            PyObject *name = PyUnicode_FromString(LAYOUTS[n].fields[at]);
            if (name) PyTuple_SetItem(fields, at, name);
            else Py_CLEAR(fields);
        }
        fine = fields && PyDict_SetItemString(layouts, LAYOUTS[n].tuple, fields) == 0;
        Py_XDECREF(fields);
    }
    fine = fine && PyModule_AddObjectRef(made, "LAYOUTS", layouts) == 0;
    Py_XDECREF(layouts);
    return fine;
}

PyMODINIT_FUNC PyInit__native(void) {
    fill_crc();
    PyObject **names[] = {&TAIL, &TAIL_START, &NEXT_OFFSET, &TOPIC, &QUEUE_ID, &TOPIC_TAIL, &ARRIVED, &INDEX_PREFIX};
    const char *texts[] = {"tail",     "tail_start", "next_offset", "topic",
                           "queue_id", "topic_tail", "arrived",     "index_prefix"};
    for (int n = 0; n < 8; n++)
        if (!*names[n] && !(*names[n] = PyUnicode_InternFromString(texts[n]))) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made && !add_layouts(made)) Py_CLEAR(made);
    return made;
}
