/* A Gradio server of one function without a library, for an image made from nothing; it tells what it can reach. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include <fcntl.h>
static char in[65536];
static void say(int s, const char *kind, const char *body) {
  char head[256];
  int n = sprintf(head, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", kind, strlen(body));
  write(s, head, n); write(s, body, strlen(body)); close(s);
}
static const char *config = "{\"version\":\"6.31.0\",\"protocol\":\"sse_v3\",\"title\":\"Probe\",\"api_prefix\":\"/gradio_api\",\"components\":[{\"id\":1,\"type\":\"textbox\",\"props\":{}}],\"dependencies\":[{\"id\":0,\"inputs\":[1],\"outputs\":[1],\"api_name\":\"probe\"}]}";
static const char *info = "{\"named_endpoints\":{\"/probe\":{\"parameters\":[{\"label\":\"Words\",\"parameter_name\":\"words\",\"parameter_has_default\":false}],\"returns\":[{}]}}}";
int main(void) {
  int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("GRADIO_SERVER_PORT")))};
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  bind(l, (void *)&a, sizeof a); listen(l, 16);
  for (;;) {
    int s = accept(l, 0, 0), n = 0, k; in[0] = 0;
    while ((k = read(s, in + n, sizeof in - 1 - n)) > 0) {
      n += k; in[n] = 0;
      char *e = strstr(in, "\r\n\r\n"), *c = strcasestr(in, "content-length:");
      if (e && (!c || in + n >= e + 4 + atoi(c + 15))) break;
    }
    if (strstr(in, "GET /config")) say(s, "application/json", config);
    else if (strstr(in, "GET /gradio_api/info")) say(s, "application/json", info);
    else if (strstr(in, "POST /gradio_api/queue/join")) say(s, "application/json", "{\"event_id\":\"E\"}");
    else {
      struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(80)}; inet_pton(AF_INET, "192.0.2.1", &far.sin_addr);
      int o = socket(AF_INET, SOCK_STREAM, 0), r = open("/root.txt", O_CREAT | O_WRONLY, 0600); char body[512];
      sprintf(body, "data: {\"msg\":\"process_completed\",\"success\":true,\"output\":{\"data\":[\"net %s, root %s\"]}}\n\n", connect(o, (void *)&far, sizeof far) ? "no" : "yes", r < 0 ? "no" : "yes");
      close(o); say(s, "text/event-stream", body);
    }
  }
}
