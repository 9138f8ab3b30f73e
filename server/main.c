/* SPDX-License-Identifier: Apache-2.0
 *
 * chxad: puts the parts together, in this order, and takes them apart in the opposite one.
 *
 *   configuration, loop, ClickHouse client, coordinator, HTTP (so that /healthz and /readyz
 *   answer), store; then the coordinator recovers and "chxad ready on <address>" is printed.
 *
 * SIGTERM and SIGINT: no new work, what runs may finish within stop_timeout_ms, what is left is
 * resumable. A second signal ends the process at once, which is safe too (kill -9 is).
 */
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "http/api.h"
#include "op/retention.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct daemon {
    uv_loop_t loop;
    struct config config;
    struct ch_client *client;
    struct ch_passer *passer;
    struct coord *coord;
    struct http_server *http;
    struct store *store;
    struct retention *retention; /* NULL before the first recovery */
    struct watch *watch;         /* likewise */
    struct api api;
    struct budget body_memory;
    char *address, *url;
    uv_signal_t sigterm, sigint;
    unsigned stopping_parts; /* HTTP and coordinator: still winding down */
    bool stopping;
};

/* sd_notify(3)'s protocol: one datagram to $NOTIFY_SOCKET. Nothing happens without systemd. */
static void notify_systemd(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (path == NULL || strlen(path) < 2 || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (to.sun_path[0] == '@')
        to.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    if (sent < 0)
        log_warn("systemd could not be notified", "state=%s", state);
    close(fd);
}

static void collect_metrics(void *arg)
{
    struct daemon *daemon = arg;
    metrics_set(METRIC_http_connections, (double)http_server_connections(daemon->http), NULL, NULL);
    metrics_set(METRIC_body_memory_bytes, (double)daemon->body_memory.bytes, NULL, NULL);
}

static void ready(void *arg)
{
    struct daemon *daemon = arg;
    metrics_set(METRIC_start_time_seconds, (double)clock_wall_ms() / 1000.0, NULL, NULL);
    if (!daemon->stopping) {
        daemon->watch =
            watch_start(&daemon->loop, daemon->client, daemon->config.clickhouse_down_ms,
                        coord_clickhouse_back, daemon->coord);
        daemon->api.watch = daemon->watch;
        daemon->retention = retention_start(&daemon->loop, daemon->store, daemon->config.node,
                                            daemon->config.retention_ms);
    }
    printf("chxad ready on %s\n", daemon->address);
    fflush(stdout);
    log_info("ready", "address=%s url=%s version=%s", daemon->address, daemon->url, CHXA_VERSION);
    notify_systemd("READY=1");
}

/* As by kill -9, which is always safe; whoever supervises us starts us again, and then we wait for
 * the lock. */
static _Noreturn void replaced(void *arg)
{
    (void)arg;
    log_error("another process has taken this node's place: ending", "%s", "");
    _exit(EXIT_FAILURE);
}

/* ---- stopping ---- */

static void client_closed(void *arg)
{
    struct daemon *daemon = arg;
    uv_stop(&daemon->loop);
}

static void passer_closed(void *arg)
{
    struct daemon *daemon = arg;
    ch_client_close(daemon->client, client_closed, daemon);
}

static void store_closed(void *arg)
{
    struct daemon *daemon = arg;
    ch_passer_close(daemon->passer, passer_closed, daemon);
}

static void part_stopped(void *arg)
{
    struct daemon *daemon = arg;
    if (--daemon->stopping_parts > 0)
        return;
    coord_halt(daemon->coord);
    store_close(daemon->store, store_closed, daemon);
}

static void signalled(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    if (daemon->stopping) {
        log_warn("stopped at once", "signal=%d", number);
        _exit(1);
    }
    log_info("stopping", "signal=%d timeout_ms=%llu", number,
             (unsigned long long)daemon->config.stop_timeout_ms);
    notify_systemd("STOPPING=1");
    daemon->stopping = true;
    daemon->stopping_parts = 2;
    if (daemon->retention)
        retention_stop(daemon->retention);
    if (daemon->watch)
        watch_stop(daemon->watch);
    daemon->api.watch = NULL;
    coord_stop(daemon->coord, daemon->config.stop_timeout_ms, part_stopped, daemon);
    http_server_stop(daemon->http, daemon->config.stop_timeout_ms, part_stopped, daemon);
}

static void catch_signals(struct daemon *daemon)
{
    signal(SIGPIPE, SIG_IGN);
    uv_signal_init(&daemon->loop, &daemon->sigterm);
    uv_signal_init(&daemon->loop, &daemon->sigint);
    daemon->sigterm.data = daemon->sigint.data = daemon;
    uv_signal_start(&daemon->sigterm, signalled, SIGTERM);
    uv_signal_start(&daemon->sigint, signalled, SIGINT);
}

/* ---- starting ---- */

static const char *none_if_empty(const char *text)
{
    return *text ? text : NULL;
}

static int start_client(struct daemon *daemon, struct error *error)
{
    const struct config *config = &daemon->config;
    struct ch_client_config client = {
        .url = config->clickhouse,
        .user = none_if_empty(config->clickhouse_user),
        .password = none_if_empty(config->clickhouse_password),
        .connect_timeout_ms = config->clickhouse_connect_timeout_ms,
        .connections_max = config->clickhouse_connections_max,
        .queue_max = config->clickhouse_queue_max,
        .answer_bytes_max = config->clickhouse_answer_bytes_max,
        .upload_buffer_bytes = config->upload_buffer_bytes,
        .budget = &daemon->body_memory,
    };
    const struct ch_passer_config passer = {
        .url = config->clickhouse,
        .connect_timeout_ms = config->clickhouse_connect_timeout_ms,
        .requests_max = config->passthrough_connections_max,
        .buffer_bytes = config->upload_buffer_bytes,
        .budget = &daemon->body_memory,
    };
    daemon->body_memory.bytes_max = config->body_memory_bytes_max;
    int code = ch_client_new(&daemon->loop, &client, &daemon->client, error);
    return code ? code : ch_passer_new(&daemon->loop, &passer, &daemon->passer, error);
}

static int start_http(struct daemon *daemon, struct error *error)
{
    const struct config *config = &daemon->config;
    struct http_config http = {
        .connections_max = config->http_connections_max,
        .head_bytes_max = config->http_head_bytes_max,
        .url_bytes_max = config->http_url_bytes_max,
        .headers_max = config->http_headers_max,
        .head_timeout_ms = config->http_head_timeout_ms,
        .body_idle_timeout_ms = config->http_body_idle_timeout_ms,
        .keep_alive_ms = config->http_keep_alive_ms,
        .write_timeout_ms = config->http_write_timeout_ms,
        .drain_bytes_max = config->http_drain_bytes_max,
        .budget = &daemon->body_memory,
    };
    int code = http_server_start(&daemon->loop, config->listen, &http, api_handle, &daemon->api,
                                 &daemon->http, error);
    if (code)
        return code;
    daemon->address = mem_strdup(http_server_address(daemon->http));
    metrics_collect_add(collect_metrics, daemon);
    daemon->url = *config->advertise ? mem_strdup(config->advertise)
                                     : mem_printf("http://%s", daemon->address);
    return 0;
}

/* INSERTs that stay open must leave connections and scratch tables to those that come and go. */
static size_t gathers_max(const struct config *config)
{
    size_t connections = config->clickhouse_connections_max * 3 / 8;
    size_t tables = config->scratch_tables_max / 2, most = config->gathers_max;
    most = most < connections ? most : connections;
    most = most < tables ? most : tables;
    return most ? most : 1;
}

static void make_coord(struct daemon *daemon)
{
    const struct config *config = &daemon->config;
    struct coord_config coord = {
        .cluster = config->cluster,
        .node = config->node,
        .url = daemon->url,
        .database = config->database,
        .idle_timeout_ms = config->idle_timeout_ms,
        .transaction_timeout_ms = config->transaction_timeout_ms,
        .transactions_max = config->transactions_max,
        .writes_per_transaction_max = config->writes_per_transaction_max,
        .parts_per_transaction_max = config->parts_per_transaction_max,
        .parts_per_partition_max = config->parts_per_partition_max,
        .attach_parts_max = config->attach_parts_max,
        .sync_files_max = config->sync_files_max,
        .commit_retry_ms = config->commit_retry_ms,
        .store_timeout_ms = config->store_timeout_ms,
        .clickhouse_timeout_ms = config->clickhouse_timeout_ms,
        .drain_timeout_ms = config->drain_timeout_ms,
        .scratch_tables_max = config->scratch_tables_max,
        .scratch_parts_max = config->scratch_parts_max,
        .scratch_idle_ms = config->scratch_idle_ms,
        .gathers_max = gathers_max(config),
        .gather_body_bytes_max = config->gather_body_bytes_max,
        .gather_idle_ms = config->gather_idle_ms,
        .gather_age_ms = config->gather_age_ms,
        .memory = &daemon->body_memory,
        .fsync = config->fsync,
    };
    coord_new(&daemon->loop, &coord, daemon->client, &daemon->coord);
    coord_on_ready(daemon->coord, ready, replaced, daemon);
    daemon->api = (struct api){
        .coord = daemon->coord,
        .wait_ms_default = config->wait_ms_default,
        .wait_ms_max = config->wait_ms_max,
        .meta_bytes_max = config->meta_bytes_max,
        .body_bytes_max = config->body_bytes_max,
        .budget = &daemon->body_memory,
        .passer = daemon->passer,
        .passthrough = (enum api_passthrough)config->passthrough,
        .implicit_transactions = config->implicit_transactions,
    };
}

static int start_store(struct daemon *daemon, struct error *error)
{
    const struct config *config = &daemon->config;
    struct store_config store = {
        .uri = config->store,
        .cluster = config->cluster,
        .node = config->node,
        .url = daemon->url,
        .session_timeout_ms = config->session_timeout_ms,
        .operation_timeout_ms = config->store_timeout_ms,
        .queue_max = config->store_queue_max,
        .entry_bytes_max = config->entry_bytes_max,
        .fsync = config->fsync,
    };
    int code =
        store_open(&daemon->loop, &store, coord_store_event, daemon->coord, &daemon->store, error);
    if (code == 0)
        coord_set_store(daemon->coord, daemon->store);
    return code;
}

int main(int argc, char *argv[])
{
    static struct daemon daemon;
    int exit_code = 0;
    if (!config_start(argc, argv, &daemon.config, &exit_code))
        return exit_code;
    log_set_level((enum log_level)daemon.config.log_level);
    char threads[24];
    snprintf(threads, sizeof threads, "%llu", (unsigned long long)daemon.config.threads);
    setenv("UV_THREADPOOL_SIZE", threads, 1); /* read by libuv at its first use */
    if (uv_loop_init(&daemon.loop) != 0)
        return 1;
    catch_signals(&daemon);

    /* Nothing calls back before the loop runs, so the API may be given its coordinator after the
     * socket is bound (its URL is part of the coordinator's configuration). */
    struct error error = {0};
    if (start_client(&daemon, &error) != 0 || start_http(&daemon, &error) != 0)
        goto failed;
    make_coord(&daemon);
    if (start_store(&daemon, &error) != 0)
        goto failed;
    uv_run(&daemon.loop, UV_RUN_DEFAULT);

    coord_free(daemon.coord);
    metrics_clear();
    free(daemon.address);
    free(daemon.url);
    config_clear(&daemon.config);
    return 0;

failed:
    fprintf(stderr, "chxad: %s\n", error_message(&error));
    return 1;
}
