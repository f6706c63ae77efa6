/* Plain sends, batches and half messages in C: the frames of a read whose forms are known, from their bytes to records
 * and replies.
 *
 * A form (send_forms.SendForm) has the template of a header that the plain handler has read whole and admitted; here a
 * header is only compared with it. This is the one function whose counterpart is no function of the same signature but
 * the plain handler (handlers/send.py): what is stored and answered is, byte for byte, what that would store and
 * answer. At the first frame that needs a closer look `sends` stops, and the handler takes over.
 */
#include "text.h"

enum { FORMS = 64, QUEUES = FORMS + 1, PAIRS = 32 };

/* ---- the values of a header */

typedef struct {
    int64_t born;
    Text properties, opaque;
    int64_t number; /* the opaque */
} Values;

static Text part(PyObject *tuple, Size place) { return text_of(PyTuple_GetItem(tuple, place)); }

static int match_json(Text in, PyObject *template, uint8_t *room, Values *found) {
    Text between = part(template, JSON_BETWEEN), before_opaque = part(template, JSON_BEFORE_OPAQUE);
    Text end = part(template, JSON_END);
    Size at = part(template, JSON_BEFORE).size + BORN, used;
    if (at > in.size || !digits(in.at + at - BORN, BORN, &found->born)) return 0;
    if (!same(in.at + at, in.size - at, between)) return 0;
    at += between.size;
    found->properties = (Text){room, unescape((Text){in.at + at, in.size - at}, room, &used)};
    if (found->properties.size < 0) return 0;
    at += used;
    if (!same(in.at + at, in.size - at, before_opaque)) return 0;
    at += before_opaque.size;
    found->opaque = (Text){in.at + at, in.size - at - end.size};
    return found->opaque.size > 0 && found->opaque.size <= 10 &&
           (found->opaque.size == 1 || found->opaque.at[0] != '0') &&
           digits(found->opaque.at, found->opaque.size, &found->number) && found->number <= INT32_MAX &&
           same(in.at + in.size - end.size, end.size, end);
}

static int match_binary(Text in, PyObject *template, Values *found) {
    Text between = part(template, BETWEEN), end = part(template, END);
    Size at = 25 + part(template, BEFORE).size + BORN;
    if (at > in.size || !digits(in.at + at - BORN, BORN, &found->born)) return 0;
    if (get32(in.at + at - BORN - 4) != BORN || get32(in.at + 17) != in.size - 21) return 0;
    if (!same(in.at + 9, 8, part(template, FLAG)) || !same(in.at + at, in.size - at, between)) return 0;
    at += between.size;
    if (in.size - at < 4) return 0;
    found->properties = (Text){in.at + at + 4, get32(in.at + at)};
    found->opaque = (Text){in.at + 5, 4};
    at += 4;
    if (found->properties.size > in.size - at || !is_utf8(found->properties)) return 0;
    at += found->properties.size;
    return in.size - at == end.size && same(in.at + at, end.size, end);
}

/* ---- what is stored of the properties */

/* Of a message that can be consumed at once (Admission.plain); NULL where they need a closer look, or without memory. */
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
    uint8_t *to = put((uint8_t *)PyBytes_AsString(stored), in.at, cut);
    to = put(to, in.at + rest, in.size - rest);
    if (apart) *to++ = 2;
    put(to, cluster.at, cluster.size);
    return stored;
}

#define IS(text, literal) ((text).size == sizeof literal - 1 && !memcmp((text).at, literal, sizeof literal - 1))

/* Of a half message, where nothing of them but `extra` is the broker's (half_records.prepared); NULL as above. `key`,
 * `group` and `immunity` are the values that Halves keeps in memory, of size -1 where there is none. */
static PyObject *half_stored_of(Text in, Text extra, Text *key, Text *group, Text *immunity) {
    Text names[PAIRS];
    Size count = 0;
    int half = 0;
    *key = *group = *immunity = (Text){NULL, -1};
    if (in.size && in.at[in.size - 1] == 2) in.size--;
    if (FIND(in, 0, "TIMER_D") >= 0) return NULL;
    for (Bytes p = in.at, end = in.at + in.size; p <= end;) {
        Bytes stop = memchr(p, 2, end - p);
        if (!stop) stop = end;
        Bytes split = memchr(p, 1, stop - p);
        if (!split || split == p || split + 1 == stop || memchr(split + 1, 1, stop - split - 1)) return NULL;
        Text name = {p, split - p}, value = {split + 1, stop - split - 1};
        for (Size n = 0; n < count; n++)
            if (names[n].size == name.size && !memcmp(names[n].at, name.at, name.size)) return NULL;
        if (count == PAIRS) return NULL;
        names[count++] = name;
        if (IS(name, "CLUSTER") || IS(name, "DELAY") || IS(name, "REAL_TOPIC") || IS(name, "REAL_QID") ||
            IS(name, "TRANSACTION_CHECK_TIMES") || IS(name, "TRAN_PREPARED_QUEUE_OFFSET"))
            return NULL;
        if (IS(name, "TRAN_MSG")) {
            if (!IS(value, "true")) return NULL;
            half = 1;
        } else if (IS(name, "WAIT")) {
            if (!IS(value, "true")) return NULL;
        } else if (IS(name, "UNIQ_KEY")) {
            *key = value;
        } else if (IS(name, "PGROUP")) {
            *group = value;
        } else if (IS(name, "CHECK_IMMUNITY_TIME_IN_SECONDS")) {
            *immunity = value;
        }
        p = stop + 1;
    }
    if (!half || in.size + extra.size > PROPERTIES_MAX) return NULL;
    PyObject *stored = PyBytes_FromStringAndSize(NULL, in.size + extra.size);
    if (stored) put(put((uint8_t *)PyBytes_AsString(stored), in.at, in.size), extra.at, extra.size);
    return stored;
}

/* ---- the forms and queues of one call */

typedef struct {
    PyObject *key, *queue, *tail; /* topic and queue id; the queue; its topic_tail */
    int64_t queue_id, next, size;
    Size requests, messages;
} Queue;

typedef struct {
    PyObject *form;
    Queue *queue, *half; /* NULL where there is none yet, or half messages are not taken */
    int64_t user_flag;
    int json, oneway;
    Text before, kind, batch_properties, batch_extra, half_extra;
    Common common;
} Form;

typedef struct {
    Form forms[FORMS];
    Queue queues[QUEUES];
    Size open, open_queues, last; /* last: the form of the last request */
    PyObject *known, *pending, *halves;
    Text born_host, store_host, cluster;
    int64_t host_bits, now, position, limit;
    Size max_body, max_record;
} State;

/* The queue with this key; NULL where there is none yet, or for an error. */
static Queue *open_queue(State *s, PyObject *key) {
    for (Size n = 0; n < s->open_queues; n++) {
        int equal = s->queues[n].key == key ? 1 : PyObject_RichCompareBool(s->queues[n].key, key, Py_EQ);
        if (equal < 0) return NULL;
        if (equal) return s->queues + n;
    }
    PyObject *found = PyDict_GetItemWithError(s->known, key);
    if (!found || s->open_queues == QUEUES) return NULL;
    Queue *queue = s->queues + s->open_queues;
    *queue = (Queue){0};
    queue->tail = PyObject_GetAttr(found, TOPIC_TAIL);
    if (queue->tail && !PyBytes_Check(queue->tail)) PyErr_SetString(PyExc_TypeError, "a queue's topic_tail is bytes");
    if (PyErr_Occurred() || !long_of(found, QUEUE_ID, &queue->queue_id) || !long_of(found, NEXT_OFFSET, &queue->next)) {
        Py_CLEAR(queue->tail);
        return NULL;
    }
    queue->key = Py_NewRef(key);
    queue->queue = Py_NewRef(found);
    s->open_queues++;
    return queue;
}

static int are_bytes(PyObject *tuple, Size fields, Size first, Size last) {
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != fields) return 0;
    for (Size n = first; n < last; n++)
        if (!PyBytes_Check(PyTuple_GetItem(tuple, n))) return 0;
    return 1;
}

static int is_template(PyObject *template, int json) {
    return json ? are_bytes(template, JSON_FIELDS, 0, JSON_FIELDS)
                : are_bytes(template, BINARY_FIELDS, 0, SECOND_CONSTANT) && part(template, KIND).size == 5 &&
                      part(template, FLAG).size == 8;
}

/* Have a SendForm in the state; NULL where it has no queue yet, or there is no room for it, or for an error. */
static Form *open_form(State *s, PyObject *form, int json) {
    if (s->open == FORMS) return NULL;
    if (!PyTuple_Check(form) || PyTuple_Size(form) != FORM_FIELDS ||
        !is_template(PyTuple_GetItem(form, FORM_REQUEST), json) ||
        !is_template(PyTuple_GetItem(form, FORM_REPLY), json) ||
        !are_bytes(form, FORM_FIELDS, FORM_BATCH_PROPERTIES, FORM_HALF_QUEUE) ||
        !are_bytes(form, FORM_FIELDS, FORM_HALF_EXTRA, FORM_FIELDS)) {
        PyErr_SetString(PyExc_TypeError, "not the form of a send");
        return NULL;
    }
    PyObject *request = PyTuple_GetItem(form, FORM_REQUEST), *half = PyTuple_GetItem(form, FORM_HALF_QUEUE);
    Form *made = s->forms + s->open;
    *made = (Form){0};
    made->queue = open_queue(s, PyTuple_GetItem(form, FORM_QUEUE));
    if (half != Py_None && !PyErr_Occurred()) made->half = open_queue(s, half);
    if (PyErr_Occurred() || (!made->queue && !made->half)) return NULL;
    made->user_flag = number_at(form, FORM_USER_FLAG);
    made->common.sys_flag = number_at(form, FORM_SYS_FLAG) | s->host_bits;
    made->common.reconsume = number_at(form, FORM_RECONSUME_TIMES);
    if (PyErr_Occurred()) return NULL;
    made->common.born_host = s->born_host;
    made->common.store_host = s->store_host;
    made->common.now = s->now;
    made->json = json;
    made->oneway = PyTuple_GetItem(form, FORM_ONEWAY) == Py_True;
    made->before = part(request, json ? JSON_BEFORE : BEFORE);
    if (!json) made->kind = part(request, KIND);
    made->batch_properties = part(form, FORM_BATCH_PROPERTIES);
    made->batch_extra = part(form, FORM_BATCH_EXTRA);
    made->half_extra = part(form, FORM_HALF_EXTRA);
    made->form = Py_NewRef(form);
    s->open++;
    return made;
}

/* Whether a header begins as those of a form: then templates.json_send_key or binary_send_key finds this form, too. */
static int begins_as(Text header, int json, const Form *form) {
    if (json != form->json) return 0;
    if (json) return same(header.at, header.size, form->before);
    return same(header.at, header.size, form->kind) && same(header.at + 21, header.size - 21, form->before);
}

/* The form of a header; NULL where it is not known, or for an error. */
static Form *form_of(State *s, PyObject *forms, Text header, int json) {
    for (Size n = 0; n < s->open; n++) { /* producers send to their queues in turn */
        Form *form = s->forms + (s->last + 1 + n) % s->open;
        if (begins_as(header, json, form)) {
            s->last = form - s->forms;
            return form;
        }
    }
    Size born = json ? FIND(header, 0, "\",\"g\":\"") : FIND(header, 21, "\0\1g\0\0\0\x0d");
    if (born < 0) return NULL;
    PyObject *key;
    if (json) {
        key = PyBytes_FromStringAndSize((const char *)header.at, born + 7);
    } else if ((key = PyBytes_FromStringAndSize((const char *)header.at + 16, born + 7 - 16))) {
        put((uint8_t *)PyBytes_AsString(key), header.at, 5);
    }
    PyObject *known = key ? PyDict_GetItemWithError(forms, key) : NULL;
    Py_XDECREF(key);
    Form *form = known ? open_form(s, known, json) : NULL;
    if (form) s->last = form - s->forms;
    return form;
}

/* ---- replies */

typedef struct {
    uint8_t *at;
    Size size, capacity;
} Replies;

static uint8_t *put_ids(uint8_t *to, Text prefix, PyObject *pending, Size first, Size count) {
    for (Size n = 0; n < count; n++) {
        if (n) to = put(put(to, (Bytes)",", 1), prefix.at, prefix.size);
        int64_t position = number_at(PyList_GetItem(pending, first + n), REQUEST_POSITION);
        for (int digit = 60; digit >= 0; digit -= 4) *to++ = "0123456789ABCDEF"[position >> digit & 15];
    }
    return to;
}

/* Add the reply to a request whose messages are in `pending` from `first` on; 0 for an error. */
static int add_reply(Replies *out, const Form *form, Text opaque, int64_t queue_offset, PyObject *pending, Size first) {
    PyObject *template = PyTuple_GetItem(form->form, FORM_REPLY);
    char number[24];
    Text offset = {(Bytes)number, sprintf(number, "%lld", (long long)queue_offset)};
    Size count = PyList_Size(pending) - first, host = 2 * form->common.store_host.size;
    Size ids = count * 16 + (count - 1) * (1 + host), size;
    Text before, between, end, more;
    if (form->json) {
        before = part(template, JSON_BEFORE);
        between = part(template, JSON_BETWEEN);
        more = part(template, JSON_BEFORE_OPAQUE);
        end = part(template, JSON_END);
        size = before.size + ids + between.size + offset.size + more.size + opaque.size + end.size;
    } else {
        before = part(template, BEFORE);
        more = part(template, FIRST_BEGIN);
        between = part(template, BETWEEN);
        end = part(template, END);
        size = 21 + before.size + 4 + more.size + ids + between.size + 4 + offset.size + end.size;
    }
    Text prefix = form->json ? before : more; /* ids begin with the address, as the one in the template does */
    if (prefix.size < host) return PyErr_SetString(PyExc_TypeError, "not the template of a reply"), 0;
    prefix = (Text){prefix.at + prefix.size - host, host};
    if (size > FRAME_MAX) return PyErr_SetString(PyExc_ValueError, "the reply to a batch is too long"), 0;
    if (out->size + 8 + size > out->capacity) {
        Size capacity = 2 * (out->size + 8 + size) + 1024;
        uint8_t *room = PyMem_Realloc(out->at, capacity);
        if (!room) return PyErr_NoMemory(), 0;
        out->at = room;
        out->capacity = capacity;
    }
    uint8_t *to = put32(out->at + out->size, 4 + size);
    to = put32(to, (form->json ? 0u : 1u << 24) | (uint32_t)size);
    if (form->json) {
        to = put_ids(put(to, before.at, before.size), prefix, pending, first, count);
        to = put(put(to, between.at, between.size), offset.at, offset.size);
        to = put(put(to, more.at, more.size), opaque.at, opaque.size);
    } else {
        to = put(put(to, part(template, KIND).at, 5), opaque.at, 4);
        to = put32(put(to, part(template, FLAG).at, 8), size - 21);
        to = put(put32(put(to, before.at, before.size), more.size + ids), more.at, more.size);
        to = put_ids(to, prefix, pending, first, count);
        to = put(put32(put(to, between.at, between.size), offset.size), offset.at, offset.size);
    }
    to = put(to, end.at, end.size);
    out->size = to - out->at;
    return 1;
}

/* ---- messages */

static PyObject *str_or_none(Text text) {
    return text.size < 0 ? Py_NewRef(Py_None) : PyUnicode_DecodeUTF8((const char *)text.at, text.size, NULL);
}

/* Write one message, plain or half, as put_batch does a batch; 0 also for one that needs a closer look. */
static Size put_message(State *s, Form *form, Queue **queue, Text body, Text properties, uint8_t *to) {
    Text key, group, immunity;
    Common common = form->common;
    PyObject *stored = NULL;
    *queue = form->queue;
    if (form->queue && !(common.sys_flag & 4)) stored = stored_of(properties, s->cluster);
    int half = !stored && !PyErr_Occurred() && form->half;
    if (half) {
        stored = half_stored_of(properties, form->half_extra, &key, &group, &immunity);
        common.sys_flag &= ~TRANSACTION;
        *queue = form->half;
    }
    if (!stored) return PyErr_Occurred() ? -1 : 0;
    common.queue_id = (*queue)->queue_id;
    common.tail = text_of((*queue)->tail);
    Size size = head_size(&common) + body.size + common.tail.size + 2 + PyBytes_Size(stored);
    if (size > s->max_record || size > s->limit - s->position) {
        Py_DECREF(stored);
        return 0;
    }
    int64_t next = (*queue)->next;
    put_record(to, size, &common, (uint32_t)form->user_flag, next, s->position, body, text_of(stored));
    if (!add_request(s->pending, (*queue)->queue, s->position, size, stored, next, &common)) return -1;
    if (half) {
        PyObject *one = Py_BuildValue("(LLLnLkNNN)", (long long)next, (long long)s->position, (long long)s->now, size,
                                      (long long)common.born, (unsigned long)get32(to + 8), str_or_none(key),
                                      str_or_none(group), str_or_none(immunity));
        int added = one ? PyList_Append(s->halves, one) : -1;
        Py_XDECREF(one);
        if (added) return -1;
    }
    s->position += size;
    return 1;
}

/* Write the messages of a request; how many they are, 0 for what needs a closer look, -1 for an error. */
static Size put_request(State *s, Form *form, Queue **queue, Text body, const Values *values, uint8_t *to) {
    form->common.born = values->born;
    if (!host_sizes_fit(&form->common) || body.size > s->max_body) return 0;
    if (!form->batch_extra.size) return put_message(s, form, queue, body, values->properties, to);
    *queue = form->queue;
    if (!form->queue || form->common.sys_flag & 4 || values->properties.size != form->batch_properties.size || body.size > BATCH_MAX ||
        !same(values->properties.at, values->properties.size, form->batch_properties))
        return 0;
    form->common.queue_id = (*queue)->queue_id;
    form->common.tail = text_of((*queue)->tail);
    return put_batch(body, form->batch_extra, &form->common, (*queue)->queue, (*queue)->next, to, &s->position,
                     s->limit - s->position, s->max_record, s->pending);
}

/* ---- the function */

/* Read a Tip and SendHosts; 0 with an error for anything else. */
static int read_state(State *s, PyObject *tip, PyObject *hosts, Py_buffer *memory, Size *offset) {
    if (!PyTuple_Check(tip) || PyTuple_Size(tip) != TIP_FIELDS || !PyTuple_Check(hosts) ||
        PyTuple_Size(hosts) != HOSTS_FIELDS || !PyDict_Check(PyTuple_GetItem(tip, TIP_QUEUES)) ||
        !PyList_Check(PyTuple_GetItem(tip, TIP_PENDING)) || !PyBytes_Check(PyTuple_GetItem(hosts, HOSTS_BORN)) ||
        !are_bytes(hosts, HOSTS_FIELDS, HOSTS_STORE, HOSTS_FIELDS)) {
        PyErr_SetString(PyExc_TypeError, "sends takes a Tip and SendHosts");
        return 0;
    }
    s->open = s->open_queues = s->last = 0;
    s->known = PyTuple_GetItem(tip, TIP_QUEUES);
    s->pending = PyTuple_GetItem(tip, TIP_PENDING);
    s->position = number_at(tip, TIP_POSITION);
    s->limit = number_at(tip, TIP_LIMIT);
    s->now = number_at(tip, TIP_NOW);
    s->max_body = number_at(tip, TIP_MAX_BODY);
    s->max_record = number_at(tip, TIP_MAX_RECORD);
    s->born_host = part(hosts, HOSTS_BORN);
    s->host_bits = number_at(hosts, HOSTS_BITS);
    s->store_host = part(hosts, HOSTS_STORE);
    s->cluster = part(hosts, HOSTS_CLUSTER);
    *offset = number_at(tip, TIP_AT);
    return !PyErr_Occurred() && PyObject_GetBuffer(PyTuple_GetItem(tip, TIP_MEMORY), memory, PyBUF_WRITABLE) == 0;
}

static PyObject *tallies_of(const State *s) {
    PyObject *tallies = PyList_New(0);
    for (Size n = 0; tallies && n < s->open_queues; n++) {
        const Queue *queue = s->queues + n;
        if (!queue->requests) continue;
        PyObject *tally = Py_BuildValue("(OnnL)", queue->key, queue->requests, queue->messages, (long long)queue->size);
        if (!tally || PyList_Append(tallies, tally)) Py_CLEAR(tallies);
        Py_XDECREF(tally);
    }
    return tallies;
}

const char sends_doc[] = "Store and answer the plain sends, batches and half messages at the beginning of a buffer.";

PyObject *sends(PyObject *self, PyObject *args) {
    PyObject *forms, *tip, *hosts, *result = NULL, *tallies = NULL;
    Py_buffer memory;
    Text in;
    Size at, most, offset;
    uint8_t *room = NULL;
    Size room_size = 0;
    Replies replies = {NULL, 0, 0};
    State state, *s = &state;
    if (!PyArg_ParseTuple(args, "y#nO!OOn", &in.at, &in.size, &at, &PyDict_Type, &forms, &tip, &hosts, &most) ||
        !read_state(s, tip, hosts, &memory, &offset))
        return NULL;
    const int64_t first = s->position;
    const Size begin = PyList_Size(s->pending);
    if (!(s->halves = PyList_New(0))) goto end;
    if (at < 0 || offset < 0 || offset > memory.len || s->limit - first > memory.len - offset) most = 0;
    while (most-- > 0 && in.size - at >= 8) {
        int64_t length = get32(in.at + at), word = get32(in.at + at + 4);
        const int json = word >> 24 == 0;
        Text header = {in.at + at + 8, word & 0xFFFFFF};
        if (word >> 24 > 1 || length > FRAME_MAX - 4 || length > in.size - at - 4 || header.size > length - 4) break;
        Text body = {header.at + header.size, length - 4 - header.size};
        if (header.size < 25) break;
        Bytes code = header.at + (json ? 8 : 0);
        if (json ? memcmp(code, "310", 3) && memcmp(code, "320", 3) : memcmp(code, "\1\x36", 2) && memcmp(code, "\1\x40", 2))
            break;
        Form *form = form_of(s, forms, header, json);
        if (!form) {
            if (PyErr_Occurred()) goto end;
            break;
        }
        if (json && header.size > room_size) {
            uint8_t *more = PyMem_Realloc(room, 2 * header.size);
            if (!more) { PyErr_NoMemory(); goto end; }
            room = more;
            room_size = 2 * header.size;
        }
        PyObject *template = PyTuple_GetItem(form->form, FORM_REQUEST);
        Values values;
        if (!(json ? match_json(header, template, room, &values) : match_binary(header, template, &values))) break;
        const Size work = PyList_Size(s->pending);
        const int64_t before = s->position;
        Queue *queue;
        Size count = put_request(s, form, &queue, body, &values, (uint8_t *)memory.buf + offset + (before - first));
        if (count < 0) goto end;
        if (!count) break;
        if (!form->oneway && !add_reply(&replies, form, values.opaque, queue->next, s->pending, work)) goto end;
        queue->next += count;
        queue->requests++;
        queue->messages += count;
        queue->size += s->position - before;
        at += 4 + length;
    }
    if (!(tallies = tallies_of(s))) goto end;
    result = Py_BuildValue("(ny#LOO)", at, replies.at ? (char *)replies.at : "", replies.size, (long long)s->position,
                           tallies, s->halves);
end:
    for (Size n = 0; n < s->open_queues; n++) {
        Queue *queue = s->queues + n;
        if (result && queue->messages && !set_long(queue->queue, NEXT_OFFSET, queue->next)) Py_CLEAR(result);
        Py_DECREF(queue->key);
        Py_DECREF(queue->queue);
        Py_DECREF(queue->tail);
    }
    for (Size n = 0; n < s->open; n++) Py_DECREF(s->forms[n].form);
    if (!result) { /* out of memory: then nothing was stored */
        PyObject *type, *value, *trace;
        PyErr_Fetch(&type, &value, &trace);
        PyList_SetSlice(s->pending, begin, PyList_Size(s->pending), NULL);
        PyErr_Restore(type, value, trace);
    }
    PyMem_Free(replies.at);
    PyMem_Free(room);
    PyBuffer_Release(&memory);
    Py_XDECREF(tallies);
    Py_XDECREF(s->halves);
    return result;
}
