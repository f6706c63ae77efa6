/* Plain sends and batches in C: the frames of a read whose forms are known, from their bytes to records and answers.
 *
 * A form has the template (protocol/templates.py) of a header that was read and admitted whole (handlers/fastpath.py);
 * here a header is only compared with it. Invariant: what is stored and answered is, byte for byte, what express.one would,
 * or for a batch handlers/send.py.
 */
#include "parts.h"

/* The fields of JsonTemplate and BinaryTemplate (protocol/templates.py). */
enum { JSON_BEFORE, JSON_BETWEEN, JSON_BEFORE_OPAQUE, JSON_END, JSON_FIELDS };
enum { KIND, FLAG, BEFORE, FIRST_BEGIN, BETWEEN, SECOND_BEGIN, END, SECOND_CONSTANT, BINARY_FIELDS };

/* The values of a header that differ from one send of a form to the next. */
typedef struct {
    int64_t born;
    Text properties, opaque;
} Values;

static int digits(Bytes at, Size size, int64_t *value) {
    *value = 0;
    for (Size n = 0; n < size; n++) {
        if (at[n] < '0' || at[n] > '9') return 0;
        *value = *value * 10 + (at[n] - '0');
    }
    return size > 0;
}

/* The text of a JSON string up to its end, into `to`; its size there, or -1; `used` is its size here. */
static Size unescape(Text in, uint8_t *to, Size *used) {
    uint8_t *start = to;
    Size n = 0;
    for (; n < in.size && in.at[n] != '"'; n++) {
        uint8_t c = in.at[n];
        if (c < 32 || c > 126) return -1;
        if (c == '\\') {
            int high, low;
            if (in.size - n < 6 || memcmp(in.at + n, "\\u00", 4)) return -1;
            high = in.at[n + 4] - '0';
            low = in.at[n + 5] | 32;
            low = low >= '0' && low <= '9' ? low - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
            if (high < 0 || high > 7 || low < 0) return -1;
            c = high << 4 | low;
            n += 5;
        }
        *to++ = c;
    }
    *used = n;
    return n < in.size ? to - start : -1;
}

static Text part(PyObject *cut, Size place) { return text_of(PyTuple_GET_ITEM(cut, place)); }

static int take_json(Text in, PyObject *cut, uint8_t *room, Values *found) {
    Size at = part(cut, JSON_BEFORE).size + BORN, used, more = part(cut, JSON_BETWEEN).size, last = part(cut, JSON_END).size;
    if (at > in.size || !digits(in.at + at - BORN, BORN, &found->born)) return 0;
    if (!same(in.at + at, in.size - at, part(cut, JSON_BETWEEN))) return 0;
    at += more;
    found->properties = (Text){room, unescape((Text){in.at + at, in.size - at}, room, &used)};
    if (found->properties.size < 0) return 0;
    at += used;
    if (!same(in.at + at, in.size - at, part(cut, JSON_BEFORE_OPAQUE))) return 0;
    at += part(cut, JSON_BEFORE_OPAQUE).size;
    int64_t opaque;
    found->opaque = (Text){in.at + at, in.size - at - last};
    return found->opaque.size > 0 && found->opaque.size <= 10 && digits(in.at + at, found->opaque.size, &opaque) &&
           same(in.at + in.size - last, last, part(cut, JSON_END));
}

static int take_binary(Text in, PyObject *cut, Values *found) {
    Size at = 25 + part(cut, BEFORE).size + BORN;
    if (at > in.size || !digits(in.at + at - BORN, BORN, &found->born)) return 0;
    if (!same(in.at, 5, part(cut, KIND)) || !same(in.at + 9, 8, part(cut, FLAG))) return 0;
    if (get32(in.at + 17) != in.size - 21) return 0;
    if (!same(in.at + at, in.size - at, part(cut, BETWEEN))) return 0;
    at += part(cut, BETWEEN).size;
    if (in.size - at < 4) return 0;
    found->properties = (Text){in.at + at + 4, get32(in.at + at)};
    found->opaque = (Text){in.at + 5, 4};
    at += 4;
    if (found->properties.size > in.size - at) return 0;
    for (Size n = 0; n < found->properties.size; n++)
        if (found->properties.at[n] & 0x80) return 0;
    at += found->properties.size;
    return in.size - at == part(cut, END).size && same(in.at + at, in.size - at, part(cut, END));
}

/* What is stored of the properties (see Admission.plain); NULL where they need a closer look, or without memory. */
static PyObject *stored_of(Text in, Text cluster) {
    if (FIND(in, 0, "DELAY\x01") >= 0 || FIND(in, 0, "TRAN_MSG\x01") >= 0 || FIND(in, 0, "CLUSTER\x01") >= 0 ||
        FIND(in, 0, "TIMER_D") >= 0)
        return NULL;
    Size cut = FIND(in, 0, "WAIT\x01"), rest = in.size;
    if (cut < 0) cut = in.size;
    else {
        Bytes value = in.at + cut + 5;
        Size size = in.size - cut - 5;
        if ((cut && in.at[cut - 1] != 2) || size < 4 || memcmp(value, "true", 4)) return NULL;
        if (size > 4) {
            rest = cut + 10;
            if (value[4] != 2 || FIND(in, rest, "WAIT\x01") >= 0) return NULL;
        }
    }
    Size size = cut + in.size - rest;
    int apart = size && (rest < in.size ? in.at[in.size - 1] : in.at[cut - 1]) != 2;
    if (size + apart + cluster.size > PROPERTIES_MAX) return NULL;
    PyObject *stored = PyBytes_FromStringAndSize(NULL, size + apart + cluster.size);
    if (!stored) return NULL;
    uint8_t *to = put((uint8_t *)PyBytes_AS_STRING(stored), in.at, cut);
    to = put(to, in.at + rest, in.size - rest);
    if (apart) *to++ = 2;
    put(to, cluster.at, cluster.size);
    return stored;
}

/* A form that this call has met, the queue its messages go to, and how they are answered. The next offset of a queue
 * is kept by the first lane that leads there: `home`. */
typedef struct Lane {
    struct Lane *home;
    PyObject *form, *queue, *tail, *template;
    int64_t next, size, flag;
    Size count, messages, opaque_size, digits_size, opaque_at, id_at, digits_at, id_size;
    int oneway, binary;
    Text text, extra; /* of batches: the properties they all have, and what is added to those of each message */
    Common common;
} Lane;

/* Fill a lane by a Form (see handlers/fastpath.py); 0 where it has no queue yet, -1 for an error. */
static int open_lane(Lane *lane, PyObject *form, PyObject *known) {
    *lane = (Lane){0};
    PyObject *queue = PyDict_GetItemWithError(known, PyTuple_GET_ITEM(form, 1));
    if (!queue) return PyErr_Occurred() ? -1 : 0;
    lane->flag = number_at(form, 2);
    lane->common.sys_flag = number_at(form, 3);
    lane->common.reconsume = number_at(form, 4);
    lane->oneway = PyTuple_GET_ITEM(form, 5) == Py_True;
    lane->binary = PyTuple_GET_SIZE(PyTuple_GET_ITEM(form, 0)) == BINARY_FIELDS;
    lane->text = part(form, 7);
    lane->extra = part(form, 8);
    lane->tail = PyObject_GetAttr(queue, TOPIC_TAIL);
    if (PyErr_Occurred() || !PyBytes_Check(lane->tail)) goto fail;
    if (!long_of(queue, QUEUE_ID, &lane->common.queue_id) || !long_of(queue, NEXT_OFFSET, &lane->next)) goto fail;
    lane->common.tail = text_of(lane->tail);
    lane->form = Py_NewRef(form);
    lane->queue = Py_NewRef(queue);
    return 1;
fail:
    Py_CLEAR(lane->tail);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a queue's topic_tail is bytes");
    return -1;
}

/* Have the template of an answer with numbers of these lengths (see express.Replies). */
static int have_template(Lane *lane, Size opaque_size, Size digits_size) {
    if (lane->template && lane->opaque_size == opaque_size && lane->digits_size == digits_size) return 1;
    PyObject *key = Py_BuildValue("(nn)", opaque_size, digits_size);
    PyObject *found = key ? PyObject_GetItem(PyTuple_GET_ITEM(lane->form, 6), key) : NULL;
    Py_XDECREF(key);
    if (!found) return 0;
    Py_XSETREF(lane->template, found);
    if (!PyTuple_Check(found) || PyTuple_GET_SIZE(found) != 5 || !PyBytes_Check(PyTuple_GET_ITEM(found, 1))) goto fail;
    lane->opaque_at = number_at(found, 2);
    lane->id_at = number_at(found, 3);
    lane->digits_at = number_at(found, 4);
    lane->opaque_size = opaque_size;
    lane->digits_size = digits_size;
    Size size = part(found, 1).size;
    if (lane->opaque_at >= 8 && lane->opaque_at <= size - opaque_size && lane->id_at >= 29 + lane->id_size &&
        lane->id_at <= size - 16 && lane->digits_at >= 8 && lane->digits_at <= size - digits_size)
        return 1;
fail:
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "not the template of an answer");
    return 0;
}

static void put_id(uint8_t *to, int64_t position) {
    for (int n = 0; n < 16; n++) to[n] = "0123456789ABCDEF"[position >> (60 - 4 * n) & 15];
}

static void add32(uint8_t *at, Size more) { put32(at, get32(at) + more); }

typedef struct {
    uint8_t *at;
    Size size, capacity;
} Answers;

/* Add the answer to a request by whose messages `pending` has grown from `first` on; 0 for an error. */
static int add_answer(Answers *out, Lane *lane, Text opaque, int64_t queue_offset, PyObject *pending, Size first) {
    char number[24];
    Size digits_size = sprintf(number, "%lld", (long long)queue_offset), count = PyList_GET_SIZE(pending) - first;
    if (!have_template(lane, opaque.size, digits_size)) return 0;
    Text template = part(lane->template, 1);
    Size more = (count - 1) * (1 + lane->id_size + 16), end = lane->id_at + 16;
    if (out->size + template.size + more > out->capacity) {
        Size capacity = 2 * (out->size + template.size + more) + 1024;
        uint8_t *room = PyMem_Realloc(out->at, capacity);
        if (!room) return PyErr_NoMemory(), 0;
        out->at = room;
        out->capacity = capacity;
    }
    uint8_t *to = out->at + out->size, *id = to + lane->id_at;
    put(to, template.at, end);
    put(to + end + more, template.at + end, template.size - end);
    put(to + lane->opaque_at + (lane->opaque_at > end ? more : 0), opaque.at, opaque.size);
    put(to + lane->digits_at + (lane->digits_at > end ? more : 0), (Bytes)number, digits_size);
    for (Size n = first; n < first + count; n++) {
        if (n > first) {
            *id++ = ',';
            id = put(id, to + lane->id_at - lane->id_size, lane->id_size);
        }
        put_id(id, number_at(PyList_GET_ITEM(pending, n), REQUEST_POSITION));
        id += 16;
    }
    add32(to, more);
    add32(to + 4, more);
    if (lane->binary) { /* the lengths of all fields and of this one */
        add32(to + 25, more);
        add32(to + lane->id_at - lane->id_size - 4, more);
    }
    out->size += template.size + more;
    return 1;
}

/* Write a message as put_batch does a batch; 0 also for one that needs a closer look. */
static Size put_message(Lane *lane, Text body, Text properties, Text cluster, uint8_t *to, int64_t *position,
                        Size room, Size max_record, PyObject *pending) {
    PyObject *stored = stored_of(properties, cluster);
    if (!stored) return PyErr_Occurred() ? -1 : 0;
    Size size = head_size(&lane->common) + body.size + lane->common.tail.size + 2 + PyBytes_GET_SIZE(stored);
    if (size > max_record || size > room) {
        Py_DECREF(stored);
        return 0;
    }
    int64_t next = lane->home->next;
    put_record(to, size, &lane->common, (uint32_t)lane->flag, next, *position, body, text_of(stored));
    if (!add_request(pending, lane->queue, *position, size, stored, next, &lane->common)) return -1;
    *position += size;
    return 1;
}

/* The key of a form (templates.json_send_key and binary_send_key); NULL where there is none, or without memory. */
static PyObject *key_of(Text header, int json) {
    Size born = json ? FIND(header, 0, "\",\"g\":\"") : FIND(header, 21, "\0\1g\0\0\0\x0d");
    if (born < 0) return NULL;
    if (json) return PyBytes_FromStringAndSize((const char *)header.at, born + 7);
    PyObject *key = PyBytes_FromStringAndSize((const char *)header.at + 19, born + 7 - 19);
    if (key) put((uint8_t *)PyBytes_AS_STRING(key), header.at, 2);
    return key;
}

static int is_form(PyObject *form, Size parts) {
    if (!PyTuple_Check(form) || PyTuple_GET_SIZE(form) != 9) return 0;
    if (!PyBytes_Check(PyTuple_GET_ITEM(form, 7)) || !PyBytes_Check(PyTuple_GET_ITEM(form, 8))) return 0;
    PyObject *cut = PyTuple_GET_ITEM(form, 0);
    if (!PyTuple_Check(cut) || PyTuple_GET_SIZE(cut) != parts) return 0;
    for (Size n = 0; n < (parts == JSON_FIELDS ? JSON_FIELDS : SECOND_CONSTANT); n++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(cut, n))) return 0;
    return 1;
}

const char sends_doc[] = "Store and answer the plain sends and batches at the beginning of a buffer.";

PyObject *sends(PyObject *self, PyObject *args) {
    PyObject *forms, *known, *pending, *result = NULL, *tallies = NULL;
    Py_buffer memory;
    Text in, host, store_host, cluster;
    Size at, offset, max_body, max_record, most, open = 0;
    long long first, limit, now, host_bits;
    uint8_t *room = NULL;
    Answers answers = {NULL, 0, 0};
    Lane lanes[LANES];
    if (!PyArg_ParseTuple(args, "y#nO!O!O!w*nLLLnnny#Ly#y#", &in.at, &in.size, &at, &PyDict_Type, &forms,
                          &PyDict_Type, &known, &PyList_Type, &pending, &memory, &offset, &first, &limit, &now,
                          &max_body, &max_record, &most, &host.at, &host.size, &host_bits, &store_host.at,
                          &store_host.size, &cluster.at, &cluster.size))
        return NULL;
    int64_t position = first;
    const Size begin = PyList_GET_SIZE(pending);
    if (at < 0 || offset < 0 || offset > memory.len || limit - first > memory.len - offset) most = 0;
    while (most-- > 0 && in.size - at >= 8) {
        int64_t length = get32(in.at + at), word = get32(in.at + at + 4);
        int json = word >> 24 == 0;
        Text header = {in.at + at + 8, word & 0xFFFFFF};
        if (word >> 24 > 1 || length > FRAME_MAX - 4 || length > in.size - at - 4 || header.size > length - 4) break;
        Text body = {header.at + header.size, length - 4 - header.size};
        if (header.size < 21) break;
        Bytes code = header.at + (json ? 8 : 0);
        if (json ? memcmp(code, "310", 3) && memcmp(code, "320", 3) : memcmp(code, "\1\x36", 2) && memcmp(code, "\1\x40", 2))
            break;
        PyObject *key = key_of(header, json);
        PyObject *form = key ? PyDict_GetItemWithError(forms, key) : NULL;
        Py_XDECREF(key);
        if (!form) {
            if (PyErr_Occurred()) goto end;
            break;
        }
        Size n = 0;
        while (n < open && lanes[n].form != form) n++;
        Lane *lane = lanes + n;
        if (n == open) {
            if (!is_form(form, json ? JSON_FIELDS : BINARY_FIELDS) || open == LANES) break;
            int opened = open_lane(lane, form, known);
            if (opened < 0) goto end;
            if (!opened) break;
            open++;
            for (lane->home = lanes; lane->home->queue != lane->queue;) lane->home++;
            lane->common.sys_flag |= host_bits;
            lane->common.born_host = host;
            lane->common.store_host = store_host;
            lane->id_size = 2 * store_host.size;
            lane->common.now = now;
        }
        Values values;
        if (json) {
            uint8_t *more = PyMem_Realloc(room, header.size);
            if (!more) { PyErr_NoMemory(); goto end; }
            room = more;
        }
        if (!(json ? take_json(header, PyTuple_GET_ITEM(form, 0), room, &values)
                   : take_binary(header, PyTuple_GET_ITEM(form, 0), &values)))
            break;
        if (lane->common.sys_flag & 4 || !host_sizes_fit(&lane->common) || body.size > max_body) break;
        lane->common.born = values.born;
        const Size work = PyList_GET_SIZE(pending);
        const int64_t before = position, next = lane->home->next;
        uint8_t *to = (uint8_t *)memory.buf + offset + (position - first);
        Size count = 0;
        if (!lane->extra.size)
            count = put_message(lane, body, values.properties, cluster, to, &position, limit - position, max_record,
                                pending);
        else if (values.properties.size == lane->text.size && body.size <= BATCH_MAX &&
                 same(values.properties.at, values.properties.size, lane->text))
            count = put_batch(body, lane->extra, &lane->common, lane->queue, next, to, &position, limit - position,
                              max_record, pending);
        if (count < 0) goto end;
        if (!count) break;
        if (!lane->oneway && !add_answer(&answers, lane, values.opaque, next, pending, work)) goto end;
        lane->home->next += count;
        lane->count++;
        lane->messages += count;
        lane->size += position - before;
        at += 4 + length;
    }
    if (!(tallies = PyList_New(0))) goto end;
    for (Size n = 0; n < open; n++) {
        Lane *lane = lanes + n;
        if (!lane->count) continue;
        PyObject *tally = Py_BuildValue("(OnnL)", PyTuple_GET_ITEM(lane->form, 1), lane->count, lane->messages,
                                        (long long)lane->size);
        int added = tally ? PyList_Append(tallies, tally) : -1;
        Py_XDECREF(tally);
        if (added) goto end;
    }
    result = Py_BuildValue("(ny#LO)", at, answers.at ? (char *)answers.at : "", answers.size, (long long)position,
                           tallies);
end:
    for (Size n = 0; n < open; n++) {
        int home = lanes[n].home == lanes + n;
        if (result && home && !set_long(lanes[n].queue, NEXT_OFFSET, lanes[n].next)) Py_CLEAR(result);
        Py_XDECREF(lanes[n].form);
        Py_XDECREF(lanes[n].queue);
        Py_XDECREF(lanes[n].tail);
        Py_XDECREF(lanes[n].template);
    }
    if (!result) { /* out of memory: then nothing was stored */
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyList_SetSlice(pending, begin, PyList_GET_SIZE(pending), NULL);
        PyErr_Restore(type, value, trace);
    }
    PyMem_Free(answers.at);
    PyMem_Free(room);
    PyBuffer_Release(&memory);
    Py_XDECREF(tallies);
    return result;
}
