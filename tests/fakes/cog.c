/* A Cog server without a library, for an image made from nothing; it says what its container lets it do. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/vfs.h>
static char in[65536];
static void say(int s, const char *body) {
  char head[256];
  int n = sprintf(head, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", strlen(body));
  write(s, head, n); write(s, body, strlen(body)); close(s);
}
static const char *at(const char *path, int flags) {
  int f = open(path, flags, 0600); if (f < 0) return "no"; close(f); return "yes";
}
int main(int count, char **words) {
  if (count > 1) return 0; /* --once: it runs here at all */
  signal(SIGCHLD, SIG_IGN);
  int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(5000)};
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  bind(l, (void *)&a, sizeof a); listen(l, 16);
  puts("listening"); fflush(stdout);
  for (;;) {
    int s = accept(l, 0, 0), n = 0, k; in[0] = 0;
    while ((k = read(s, in + n, sizeof in - 1 - n)) > 0) {
      n += k; in[n] = 0;
      char *e = strstr(in, "\r\n\r\n"), *c = strcasestr(in, "content-length:");
      if (e && (!c || in + n >= e + 4 + atoi(c + 15))) break;
    }
    if (strstr(in, "GET /health-check")) say(s, "{\"status\":\"READY\"}");
    else if (strstr(in, "GET /openapi.json")) say(s, "{\"info\":{\"title\":\"Probe\"},\"components\":{\"schemas\":{\"Input\":{\"required\":[\"prompt\"],\"properties\":{\"prompt\":{\"type\":\"string\"}}},\"Output\":{\"type\":\"object\"}}}}");
    else if (strstr(in, "\"die\"")) { _exit(7); }
    else if (strstr(in, "\"talk\"")) {
      static char line[1 << 16]; memset(line, 'x', sizeof line); line[sizeof line - 1] = '\n';
      for (int i = 0; i < 512; i++) write(1, line, sizeof line);
      say(s, "{\"status\":\"succeeded\",\"output\":\"\"}");
    }
    else if (strstr(in, "\"wait\"")) { if (fork() == 0) { sleep(60); _exit(0);} }
    else {
      struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(80)}; inet_pton(AF_INET, "192.0.2.1", &far.sin_addr);
      int o = socket(AF_INET, SOCK_STREAM, 0); char body[512];
      const char *net = connect(o, (void *)&far, sizeof far) ? "no" : "yes"; close(o);
      struct statfs volume; const char *medium = statfs("/data", &volume) || volume.f_type != 0x01021994 ? "disk" : "memory";
      sprintf(body, "{\"status\":\"succeeded\",\"logs\":\"made\",\"output\":{\"root\":\"%s\",\"tmp\":\"%s\",\"mount\":\"%s\",\"mount_write\":\"%s\",\"net\":\"%s\",\"volume\":\"%s\",\"file\":\"data:text/plain;base64,aGk=\"}}",
        at("/root.txt", O_CREAT|O_WRONLY), at("/tmp/x", O_CREAT|O_WRONLY), at("/mnt/sixfold/artifacts/score.mid", O_RDONLY), at("/mnt/sixfold/artifacts/new", O_CREAT|O_WRONLY), net, medium);
      say(s, body);
    }
  }
}
