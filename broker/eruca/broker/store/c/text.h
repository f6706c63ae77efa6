/* Texts in headers: decimal numbers, UTF-8, and the strings of JSON. */
#ifndef ERUCA_TEXT_H
#define ERUCA_TEXT_H
#include "parts.h"

static inline int digits(Bytes at, Size size, int64_t *value) {
    *value = 0;
    for (Size n = 0; n < size; n++) {
        if (at[n] < '0' || at[n] > '9') return 0;
        *value = *value * 10 + (at[n] - '0');
    }
    return size > 0;
}

static inline int hex4(Bytes at) {
    int value = 0;
    for (int n = 0; n < 4; n++) {
        int c = at[n], digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

static inline uint8_t *put_utf8(uint8_t *to, uint32_t c) {
    if (c < 0x80) {
        *to++ = c;
    } else if (c < 0x800) {
        *to++ = 0xC0 | c >> 6;
        *to++ = 0x80 | (c & 63);
    } else if (c < 0x10000) {
        *to++ = 0xE0 | c >> 12;
        *to++ = 0x80 | (c >> 6 & 63);
        *to++ = 0x80 | (c & 63);
    } else {
        *to++ = 0xF0 | c >> 18;
        *to++ = 0x80 | (c >> 12 & 63);
        *to++ = 0x80 | (c >> 6 & 63);
        *to++ = 0x80 | (c & 63);
    }
    return to;
}

/* Whether a text is UTF-8 as Python's decoder wants it: the shortest forms, no surrogates, nothing above U+10FFFF. */
static inline int is_utf8(Text in) {
    for (Size n = 0; n < in.size;) {
        uint8_t c = in.at[n];
        if (in.size - n >= 8) { /* most texts are ASCII, or have long parts that are */
            uint64_t eight;
            memcpy(&eight, in.at + n, 8);
            if (!(eight & 0x8080808080808080u)) {
                n += 8;
                continue;
            }
        }
        if (c < 0x80) {
            n++;
            continue;
        }
        int more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : 1;
        if (c < 0xC2 || c > 0xF4 || in.size - n <= more) return 0;
        uint8_t next = in.at[n + 1];
        if ((c == 0xE0 && next < 0xA0) || (c == 0xED && next > 0x9F) || (c == 0xF0 && next < 0x90) ||
            (c == 0xF4 && next > 0x8F))
            return 0;
        for (int k = 1; k <= more; k++)
            if ((in.at[n + k] & 0xC0) != 0x80) return 0;
        n += 1 + more;
    }
    return 1;
}

/* The text of a JSON string up to its end, into `to`; its size there, or -1; `used` is its size here. */
static inline Size unescape(Text in, uint8_t *to, Size *used) {
    uint8_t *start = to, beyond = 0;
    Size n = 0;
    while (n < in.size) {
        uint8_t c = in.at[n];
        if (c == '"') {
            *used = n;
            return beyond & 0x80 && !is_utf8((Text){start, to - start}) ? -1 : to - start;
        }
        if (c < 32) return -1;
        if (c != '\\') {
            beyond |= c;
            *to++ = c;
            n++;
            continue;
        }
        if (in.size - n < 2) return -1;
        c = in.at[n + 1];
        n += 2;
        switch (c) {
        case '"': case '\\': case '/': *to++ = c; continue;
        case 'b': *to++ = '\b'; continue;
        case 'f': *to++ = '\f'; continue;
        case 'n': *to++ = '\n'; continue;
        case 'r': *to++ = '\r'; continue;
        case 't': *to++ = '\t'; continue;
        case 'u': break;
        default: return -1;
        }
        if (in.size - n < 4) return -1;
        int32_t code = hex4(in.at + n);
        n += 4;
        if (code < 0 || (code >= 0xDC00 && code < 0xE000)) return -1;
        if (code >= 0xD800 && code < 0xDC00) {
            if (in.size - n < 6 || in.at[n] != '\\' || in.at[n + 1] != 'u') return -1;
            int32_t low = hex4(in.at + n + 2);
            if (low < 0xDC00 || low >= 0xE000) return -1;
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            n += 6;
        }
        to = put_utf8(to, code);
    }
    return -1;
}

#endif
