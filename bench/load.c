// A load generator for an OpenAI-compatible address: whole answers and event streams, one thread, epoll.
//
// Closed loop: each of -c connections sends its next request when the last answer is complete. Open loop (-r): requests
// start at fixed times and their latency counts from then, so that a stall cannot hide. Streams of the fake engine are
// checked event by event: one that is missing, doubled or out of order is an error, and so is a stream that ends before
// its last one, stands still, or has lost or gained a byte between two of them.
//
//   -p port  -c connections  -d seconds  -w warm-up seconds (not counted)  -r requests per second
//   -s 'events=128 size=200 pause=0' asks for streams shaped so   -b bytes of prompt   -g seconds over which connections start
//   -H 'name: value' more headers   -K keep the streams open to the end and say on stderr when all have begun
// Prints one JSON object; times in microseconds.
//
//   cc -O2 -o load load.c
#include "net.h"

// ---------------------------------------------------------------- samples

typedef struct { uint32_t *values; size_t count, capacity; } samples; // tenths of microseconds

static void sample(samples *s, uint64_t ns) {
  if (s->count == s->capacity) s->values = realloc(s->values, (s->capacity = 2 * s->capacity + 4096) * sizeof *s->values);
  s->values[s->count++] = ns / 100 > UINT32_MAX ? UINT32_MAX : ns / 100;
}

static int by_value(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return (x > y) - (x < y);
}

static void print_samples(const char *name, samples *s) {
  if (!s->count) { printf(",\"%s\":null", name); return; }
  qsort(s->values, s->count, sizeof *s->values, by_value);
#define QUANTILE(q) (s->values[(size_t)((s->count - 1) * (q))] / 10.0)
  printf(",\"%s\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, QUANTILE(.5), QUANTILE(.9), QUANTILE(.99), QUANTILE(1));
}

// ---------------------------------------------------------------- one connection

enum state { IDLE, HEAD, BY_LENGTH, CHUNK_SIZE, CHUNK_DATA, CHUNK_END, TRAILER };

typedef struct client {
  int fd;
  enum state state;
  size_t sent;                        // bytes of the request
  uint64_t started_ns;
  char head[8192];
  size_t head_bytes;
  int status, closes;
  size_t left;                        // of the body or the chunk
  int line_bytes;
  int mark_at, mark_number, expected; // reading `#<number>@<time>#`
  uint64_t mark_time;
  size_t gap, usual_gap;              // bytes since the last mark, and between any two
  long events, events_when_told;
  struct client *next_idle;
} client;

static int epoll, port = 8080, connections = 64, streams, keep_open, events_asked = 128;
static double seconds = 5, warm_up = 1, per_second, spread;
static char *request;
static size_t request_bytes;
static uint64_t counted_from, counted_to;
static long done, events_seen, errors, all_done, all_events, running;
static char first_error[160];
static samples latency, first_byte, on_the_way;
static client *idle;

static int counting(uint64_t now) { return now >= counted_from && now < counted_to; }

static void begin(client *c, uint64_t when);

static void open_connection(client *c) {
  struct sockaddr_in address = loopback(port);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  no_delay(c->fd);
  if (connect(c->fd, (void *)&address, sizeof address) && errno != EINPROGRESS) { perror("connect"); exit(1); }
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void send_more(client *c) {
  while (c->sent < request_bytes) {
    ssize_t sent = send(c->fd, request + c->sent, request_bytes - c->sent, MSG_NOSIGNAL);
    if (sent < 0) return;
    c->sent += sent;
  }
}

static void next(client *c, uint64_t now) {
  c->state = IDLE;
  if (per_second > 0) { c->next_idle = idle; idle = c; }
  else if (now < counted_to) begin(c, now);
}

static void begin(client *c, uint64_t when) {
  c->started_ns = when;
  c->state = HEAD;
  c->sent = c->head_bytes = 0;
  c->mark_at = c->expected = c->closes = c->status = 0;
  c->events = c->events_when_told = 0;
  c->gap = c->usual_gap = 0;
  running++;
  if (c->fd < 0) open_connection(c);
  send_more(c);
}

static void failed(client *c, const char *why, uint64_t now) {
  if (!first_error[0]) snprintf(first_error, sizeof first_error, "%s (status %d, state %d, event %d)", why, c->status, c->state, c->expected);
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
  if (c->state == IDLE) return;
  running--;
  errors++;
  next(c, now);
}

static void complete(client *c, uint64_t now) {
  if (streams && c->status == 200 && (c->expected != events_asked || c->mark_at)) return failed(c, "stream ended before its last event", now);
  running--;
  all_done++;
  if (counting(now)) { done++; sample(&latency, now - c->started_ns); }
  if (c->status != 200) { errors++; if (!first_error[0]) snprintf(first_error, sizeof first_error, "status %d", c->status); }
  if (c->closes) { close(c->fd); c->fd = -1; }
  next(c, now);
}

// ---------------------------------------------------------------- reading answers

// Follows the marks of the fake engine through the bytes, however they are cut. False: an event is missing or doubled, or
// the bytes between two marks, which are the same number each time, are not as many.
static int check_events(client *c, const char *bytes, size_t count, uint64_t now) {
  for (size_t i = 0; i < count; i++) {
    char byte = bytes[i];
    switch (c->mark_at) {
    case 0: {
      const char *hash = memchr(bytes + i, '#', count - i);
      c->gap += hash ? (size_t)(hash - bytes) - i : count - i;
      if (!hash) return 1;
      if (c->expected == 1) c->usual_gap = c->gap;
      if (c->expected > 1 && c->gap != c->usual_gap) return 0;
      i = hash - bytes;
      c->mark_at = 1;
      c->mark_number = 0;
      break;
    }
    case 1:
      if (byte >= '0' && byte <= '9') c->mark_number = c->mark_number * 10 + byte - '0';
      else if (byte == '@') { c->mark_at = 2; c->mark_time = 0; }
      else return 0;
      break;
    default:
      if (byte >= '0' && byte <= '9') { c->mark_time = c->mark_time * 10 + byte - '0'; break; }
      if (byte != '#' || c->mark_number != c->expected) return 0;
      c->expected++;
      c->gap = 0;
      c->events++;
      c->mark_at = 0;
      all_events++;
      if (counting(now)) { events_seen++; sample(&on_the_way, now > c->mark_time ? now - c->mark_time : 0); }
    }
  }
  return 1;
}

static int take_head(client *c, const char **bytes, size_t *count, uint64_t now) { // 1: complete, 0: more, -1: refused
  size_t before = c->head_bytes, room = sizeof c->head - 1 - before, part = *count < room ? *count : room;
  if (!part) return -1;
  memcpy(c->head + before, *bytes, part);
  c->head_bytes += part;
  c->head[c->head_bytes] = 0;
  char *blank = strstr(c->head, "\r\n\r\n");
  if (!blank) { *bytes += part; *count -= part; return 0; }
  size_t used = blank + 4 - c->head - before;
  *bytes += used;
  *count -= used;
  blank[2] = 0;
  c->status = atoi(c->head + 9);
  c->closes = strcasestr(c->head, "\nconnection: close") != NULL;
  char *length = strcasestr(c->head, "\ncontent-length:");
  if (strcasestr(c->head, "\ntransfer-encoding: chunked")) { c->state = CHUNK_SIZE; c->left = 0; }
  else if (length) { c->state = BY_LENGTH; c->left = strtoul(length + 16, NULL, 10); }
  else return -1;
  if (counting(now)) sample(&first_byte, now - c->started_ns);
  return 1;
}

static void take(client *c, const char *bytes, size_t count, uint64_t now) {
  while (count > 0 || (c->state == BY_LENGTH && c->left == 0)) {
    switch (c->state) {
    case HEAD:
      if (take_head(c, &bytes, &count, now) < 0) return failed(c, "no answer I can read", now);
      break;
    case BY_LENGTH: {
      size_t part = c->left < count ? c->left : count;
      c->left -= part; bytes += part; count -= part;
      if (c->left > 0) return;
      complete(c, now);
      if (count > 0) failed(c, "bytes behind the answer", now);
      return;
    }
    case CHUNK_SIZE: {
      char byte = *bytes++;
      count--;
      int digit = byte >= '0' && byte <= '9' ? byte - '0' : (byte | 32) >= 'a' && (byte | 32) <= 'f' ? (byte | 32) - 'a' + 10 : -1;
      if (digit >= 0) c->left = c->left * 16 + digit;
      else if (byte == '\n') { c->state = c->left ? CHUNK_DATA : TRAILER; c->line_bytes = 0; }
      else if (byte != '\r') return failed(c, "no chunk size", now);
      break;
    }
    case CHUNK_DATA: {
      size_t part = c->left < count ? c->left : count;
      if (streams && !check_events(c, bytes, part, now)) return failed(c, "event missing, doubled, out of order or of another length", now);
      c->left -= part; bytes += part; count -= part;
      if (c->left == 0) { c->state = CHUNK_END; c->line_bytes = 0; }
      break;
    }
    case CHUNK_END:
      count--;
      if (*bytes++ == '\n') c->state = CHUNK_SIZE;
      break;
    case TRAILER:
      count--;
      if (*bytes++ != '\n') { c->line_bytes++; break; }
      if (c->line_bytes > 1) { c->line_bytes = 0; break; }
      complete(c, now);
      if (count > 0) failed(c, "bytes behind the answer", now);
      return;
    case IDLE:
      return failed(c, "bytes nobody asked for", now);
    }
  }
}

static void read_all(client *c) {
  static char bytes[262144];
  for (int fd = c->fd; c->fd == fd;) {
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got > 0) take(c, bytes, got, now_ns());
    else if (got == 0) return failed(c, "connection ended", now_ns());
    else { if (errno != EAGAIN) failed(c, "connection broke", now_ns()); return; }
  }
}

// ---------------------------------------------------------------- the run

static void compose(const char *shape, size_t prompt_bytes, const char *headers) {
  char *prompt = malloc(prompt_bytes + 1), *body;
  static const char words[] = "the quick brown fox jumps over the lazy dog ";
  for (size_t i = 0; i < prompt_bytes; i++) prompt[i] = words[i % (sizeof words - 1)];
  prompt[prompt_bytes] = 0;
  int length = asprintf(&body, "{\"model\":\"m1\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello. %s\"}],\"user\":\"bench %s\",\"stream\":%s}",
                        prompt, shape ? shape : "json=1024", shape ? "true" : "false");
  request_bytes = asprintf(&request, "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\ncontent-type: application/json\r\n"
                                     "%s%scontent-length: %d\r\n\r\n%s",
                           port, strstr(headers, "authorization:") ? "" : "authorization: Bearer sk-bench\r\n", headers, length, body);
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  char headers[4096] = "";
  const char *shape = NULL;
  size_t prompt_bytes = 0;
  for (int option; (option = getopt(count, arguments, "p:c:d:w:r:s:b:g:H:K")) > 0;) switch (option) {
    case 'p': port = atoi(optarg); break;
    case 'c': connections = atoi(optarg); break;
    case 'd': seconds = atof(optarg); break;
    case 'w': warm_up = atof(optarg); break;
    case 'r': per_second = atof(optarg); break;
    case 's':
      shape = optarg;
      streams = 1;
      if (strstr(shape, "events=")) events_asked = atoi(strstr(shape, "events=") + 7);
      break;
    case 'b': prompt_bytes = atol(optarg); break;
    case 'g': spread = atof(optarg); break;
    case 'H': strcat(strcat(headers, optarg), "\r\n"); break;
    case 'K': keep_open = 1; break;
    default: return 2;
    }
  compose(shape, prompt_bytes, headers);
  epoll = epoll_create1(0);
  client *clients = calloc(connections, sizeof *clients);
  uint64_t start = now_ns(), due = start;
  counted_from = start + warm_up * SECOND;
  counted_to = counted_from + seconds * SECOND;
  for (int i = 0; i < connections; i++) {
    clients[i].fd = -1;
    if (per_second > 0) { clients[i].next_idle = idle; idle = &clients[i]; }
  }
  int begun = 0, told = 0;
  struct epoll_event events[512];
  for (uint64_t now = start;; now = now_ns()) {
    if (now >= counted_to && (running == 0 || keep_open || now > counted_to + 3 * SECOND)) break;
    uint64_t wake = now < counted_from ? counted_from : now < counted_to ? counted_to : now + 100 * MILLISECOND;
    while (per_second <= 0 && begun < connections && now >= start + (uint64_t)(spread * SECOND * begun / connections)) begin(&clients[begun++], now);
    if (per_second <= 0 && begun < connections) wake = start + (uint64_t)(spread * SECOND * begun / connections);
    while (per_second > 0 && due <= now && now < counted_to && idle) {
      client *c = idle;
      idle = c->next_idle;
      begin(c, due);
      due += SECOND / per_second;
    }
    if (per_second > 0 && idle && due < wake) wake = due;
    if (keep_open && !told && now >= counted_from) {
      long open = 0;
      for (int i = 0; i < connections; i++) {
        open += clients[i].events > 0;
        clients[i].events_when_told = clients[i].events;
      }
      fprintf(stderr, "%ld\n", open);
      told = 1;
    }
    int ready = wait_events(epoll, events, 512, wake);
    for (int i = 0; i < ready; i++) {
      client *c = events[i].data.ptr;
      if (c->fd < 0) continue;
      if ((events[i].events & EPOLLOUT) && c->state == HEAD) send_more(c);
      if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) read_all(c);
    }
  }
  for (int i = 0; keep_open && i < connections; i++) {
    if (clients[i].events > clients[i].events_when_told) continue;
    errors++;
    if (!first_error[0]) snprintf(first_error, sizeof first_error, "stream stands still after %ld events", clients[i].events);
  }
  printf("{\"done\":%ld,\"events\":%ld,\"allDone\":%ld,\"allEvents\":%ld,\"errors\":%ld,\"seconds\":%.3f,\"firstError\":\"%s\"",
         done, events_seen, all_done, all_events, errors, seconds, first_error);
  print_samples("latencyUs", &latency);
  print_samples("firstByteUs", &first_byte);
  print_samples("eventDelayUs", &on_the_way);
  printf("}\n");
  return 0;
}
