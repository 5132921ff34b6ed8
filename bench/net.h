// What the fake engine and the load generator share: time, sockets, growing buffers.
#ifndef BENCH_NET_H
#define BENCH_NET_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000ull
#define MILLISECOND 1000000ull

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * SECOND + t.tv_nsec;
}

typedef struct {
  char *data;
  size_t from, to, capacity; // the bytes from..to are in use
} buffer;

static inline void buffer_room(buffer *b, size_t more) {
  if (b->from == b->to) b->from = b->to = 0;
  if (b->to + more <= b->capacity) return;
  b->capacity = (b->to + more) * 2;
  b->data = realloc(b->data, b->capacity);
  if (!b->data) abort();
}

static inline void buffer_add(buffer *b, const char *bytes, size_t count) {
  buffer_room(b, count);
  memcpy(b->data + b->to, bytes, count);
  b->to += count;
}

static inline void buffer_free(buffer *b) {
  free(b->data);
  memset(b, 0, sizeof *b);
}

static inline struct sockaddr_in loopback(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

static inline void no_delay(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline int wait_events(int epoll, struct epoll_event *events, int max, uint64_t until_ns) {
  uint64_t now = now_ns(), left = until_ns > now ? until_ns - now : 0;
  struct timespec timeout = {left / SECOND, left % SECOND};
  return epoll_pwait2(epoll, events, max, until_ns == UINT64_MAX ? NULL : &timeout, NULL);
}
#endif
