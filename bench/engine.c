// A fake engine that is never the bottleneck: one thread, epoll, HTTP/1.1 keep-alive.
//
// A POST whose body holds `"stream":true` is answered with events, any other with one JSON object. The body says how,
// in a string anywhere in it:   "bench events=128 size=200 pause=20"
//   events  how many                                   (128)
//   size    bytes of one, about                        (200)
//   pause   milliseconds between two; 0 = all at once  (0)
//   json    bytes of an answer that is not streamed    (1024)
// Each event carries `#<number>@<nanoseconds>#`, so that whoever reads it knows whether one is missing and how long it
// was on its way. Any other request is answered with an empty 200.
//
//   cc -O2 -o engine engine.c && ./engine 9001
#include "net.h"

typedef struct connection {
  int fd;
  buffer in, out;
  int waits_for_room;  // EPOLLOUT is asked for
  int events_left, event_number, event_bytes;
  uint64_t pause_ns, due_ns;
  int heap_at;         // place among those that wait for their time; -1 when not
} connection;

static int epoll;
static char filler[65536];

// ---------------------------------------------------------------- who is due first (a binary heap)

static connection **heap;
static int heap_count, heap_capacity;

static void heap_put(int at, connection *c) { heap[at] = c; c->heap_at = at; }

static void heap_up(int at) {
  connection *c = heap[at];
  for (int parent; at > 0 && heap[parent = (at - 1) / 2]->due_ns > c->due_ns; at = parent) heap_put(at, heap[parent]);
  heap_put(at, c);
}

static void heap_down(int at) {
  connection *c = heap[at];
  for (int child; (child = 2 * at + 1) < heap_count; at = child) {
    if (child + 1 < heap_count && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
    if (heap[child]->due_ns >= c->due_ns) break;
    heap_put(at, heap[child]);
  }
  heap_put(at, c);
}

static void wait_for_time(connection *c) {
  if (heap_count == heap_capacity) heap = realloc(heap, (heap_capacity = 2 * heap_capacity + 256) * sizeof *heap);
  heap_put(heap_count++, c);
  heap_up(heap_count - 1);
}

static void wait_no_more(connection *c) {
  int at = c->heap_at;
  if (at < 0) return;
  connection *last = heap[--heap_count];
  c->heap_at = -1;
  if (last == c) return;
  heap_put(at, last);
  heap_up(at);
  heap_down(last->heap_at);
}

// ---------------------------------------------------------------- writing

static void watch(connection *c, int for_room) {
  if (c->waits_for_room == for_room) return;
  c->waits_for_room = for_room;
  struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP | (for_room ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static int flush(connection *c) { // -1: the peer is gone
  while (c->out.from < c->out.to) {
    ssize_t sent = send(c->fd, c->out.data + c->out.from, c->out.to - c->out.from, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return -1;
    if (sent < 0) return watch(c, 1), 0;
    c->out.from += sent;
  }
  return watch(c, 0), 0;
}

static void add_event(connection *c) {
  char event[66000], size[16];
  int padding = c->event_bytes > 120 ? c->event_bytes - 120 : 0;
  int length = sprintf(event,
                       "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"#%d@%llu#%.*s\"},"
                       "\"finish_reason\":%s}]}\n\n",
                       c->event_number++, (unsigned long long)now_ns(), padding, filler, c->events_left == 1 ? "\"stop\"" : "null");
  if (--c->events_left == 0) length += sprintf(event + length, "data: [DONE]\n\n");
  buffer_add(&c->out, size, sprintf(size, "%x\r\n", length));
  buffer_add(&c->out, event, length);
  buffer_add(&c->out, "\r\n", 2);
  if (c->events_left == 0) buffer_add(&c->out, "0\r\n\r\n", 5);
}

static int produce(connection *c) { // writes what is due; -1: the peer is gone
  if (c->pause_ns == 0) {
    while (c->events_left > 0 && c->out.from == c->out.to) {
      while (c->events_left > 0 && c->out.to - c->out.from < 16384) add_event(c);
      if (flush(c) < 0) return -1;
    }
    return 0;
  }
  add_event(c);
  // The first pause is drawn by lot: streams that were started together must not tick together.
  c->due_ns += c->event_number == 1 ? c->pause_ns / 2 + rand() % c->pause_ns : c->pause_ns;
  if (c->events_left > 0) wait_for_time(c);
  return flush(c);
}

// ---------------------------------------------------------------- requests

static int asked(const char *wish, const char *name, int otherwise) {
  const char *at = wish ? strstr(wish, name) : NULL;
  return at ? atoi(at + strlen(name)) : otherwise;
}

static int answer(connection *c, const char *body) {
  const char *wish = strstr(body, "bench ");
  char head[256];
  if (strstr(body, "\"stream\":true")) {
    c->events_left = asked(wish, "events=", 128);
    c->event_bytes = asked(wish, "size=", 200);
    c->pause_ns = asked(wish, "pause=", 0) * MILLISECOND;
    c->event_number = 0;
    c->due_ns = now_ns();
    static const char stream[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    buffer_add(&c->out, stream, sizeof stream - 1);
    return c->pause_ns == 0 ? (flush(c) < 0 ? -1 : produce(c)) : produce(c);
  }
  char json[66000];
  int padding = asked(wish, "json=", 1024) - 160;
  int length = *body == 0 ? 0
                          : sprintf(json,
                                    "{\"object\":\"chat.completion\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%.*s\"},"
                                    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":9}}",
                                    padding > 0 ? padding : 0, filler);
  buffer_add(&c->out, head, sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n", length));
  buffer_add(&c->out, json, length);
  return flush(c);
}

// Bytes of the chunked body at `at`, unframed in place, its length in `length`; 0 while it is not complete.
static size_t unchunk(char *at, size_t have, size_t *length) {
  size_t read = 0, written = 0;
  for (;;) {
    char *line_end = memmem(at + read, have - read, "\r\n", 2);
    if (!line_end) return 0;
    size_t size = strtoul(at + read, NULL, 16), start = line_end - at + 2;
    if (start + size + 2 > have) return 0;
    memmove(at + written, at + start, size);
    written += size;
    read = start + size + 2;
    if (size == 0) return *length = written, read;
  }
}

static int serve(connection *c) { // answers every whole request in the buffer; -1: no more of this connection
  while (c->in.from < c->in.to && c->events_left == 0) {
    buffer_room(&c->in, 1);
    char *start = c->in.data + c->in.from, *end = c->in.data + c->in.to;
    *end = 0;
    char *blank = memmem(start, end - start, "\r\n\r\n", 4);
    if (!blank) return 0;
    char *body = blank + 4;
    *blank = 0;
    char *announced = strcasestr(start, "\ncontent-length:");
    int chunked = strcasestr(start, "\ntransfer-encoding: chunked") != NULL;
    size_t length = announced ? strtoul(announced + 16, NULL, 10) : 0, used = length;
    *blank = '\r';
    if (chunked && !(used = unchunk(body, end - body, &length))) return 0;
    if ((size_t)(end - body) < used) return 0;
    char kept = body[length];
    body[length] = 0;
    int gone = answer(c, body);
    body[length] = kept;
    if (gone < 0) return -1;
    c->in.from += body + used - start;
  }
  return 0;
}

static int read_more(connection *c) {
  for (;;) {
    buffer_room(&c->in, 65536);
    ssize_t got = recv(c->fd, c->in.data + c->in.to, c->in.capacity - c->in.to - 1, 0);
    if (got == 0) return -1;
    if (got < 0) return errno == EAGAIN ? serve(c) : -1;
    c->in.to += got;
  }
}

// ---------------------------------------------------------------- the loop

static void accept_all(int listening) {
  for (int fd; (fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0;) {
    no_delay(fd);
    connection *c = calloc(1, sizeof *c);
    c->fd = fd;
    c->heap_at = -1;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
  }
}

static void drop(connection *c) {
  wait_no_more(c);
  close(c->fd);
  buffer_free(&c->in);
  buffer_free(&c->out);
  free(c);
}

static int handle(connection *c, uint32_t events) {
  if (events & (EPOLLERR | EPOLLHUP)) return -1;
  if (events & EPOLLOUT) {
    if (flush(c) < 0 || (c->pause_ns == 0 && c->events_left > 0 && produce(c) < 0)) return -1;
    if (c->events_left == 0 && serve(c) < 0) return -1;
  }
  return events & (EPOLLIN | EPOLLRDHUP) ? read_more(c) : 0;
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  memset(filler, 'x', sizeof filler);
  struct sockaddr_in address = loopback(count > 1 ? atoi(arguments[1]) : 9001);
  int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listening, (void *)&address, sizeof address) || listen(listening, 4096)) return perror("listen"), 1;
  epoll = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, events[512];
  epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &e);
  for (;;) {
    int ready = wait_events(epoll, events, 512, heap_count ? heap[0]->due_ns : UINT64_MAX);
    for (int i = 0; i < ready; i++) {
      connection *c = events[i].data.ptr;
      if (!c) accept_all(listening);
      else if (handle(c, events[i].events) < 0) drop(c);
    }
    for (uint64_t now = now_ns(); heap_count && heap[0]->due_ns <= now;) {
      connection *c = heap[0];
      wait_no_more(c);
      if (produce(c) < 0) drop(c);
    }
  }
}
