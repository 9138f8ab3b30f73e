/* SPDX-License-Identifier: Apache-2.0
 *
 * Exactly once from a Kafka topic into ClickHouse: a row is partition, offset and the message's value (RowBinary would do
 * as well; here it is TSV, and a value is one line of text).
 *
 *   kafka_sink http://127.0.0.1:8124 SINK "INSERT INTO db.t FORMAT TSV" BROKERS TOPIC [ROWS [MS]]
 *
 * The offsets are kept with the rows: each transaction carries, as its meta, the offsets behind its last rows, and both are
 * published by the same commit. A start asks the sink what it committed last and goes on from there. Kafka's own committed
 * offsets are never written and never read, and there is no state on this machine. What was prepared when we died is
 * rolled back by the next start, and read again.
 *
 * It reads all partitions of the topic itself, without a consumer group's rebalancing: to share a topic, start one for each
 * share of its partitions, each with a sink's name of its own. Partitions that are added are seen at the next start. SIGTERM
 * ends it after a last checkpoint.
 */
#include <chxa/chxa.h>

#include <inttypes.h>
#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct chxa_error error;
static volatile sig_atomic_t stopping;

static void stop(int number)
{
    (void)number;
    stopping = 1;
}

static void check(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s: %s: %s\n", what, chxa_error_name(code), error.message);
        exit(2);
    }
}

static void must(bool good, const char *what, const char *why)
{
    if (!good) {
        fprintf(stderr, "%s: %s\n", what, why);
        exit(1);
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- offsets: {"0": 4711, "1": 4242}, the next message of each partition ---- */

static json_t *load_offsets(struct chxa_client *client, const char *sink)
{
    struct chxa_checkpoint last;
    check(chxa_sink_last_committed(client, sink, &last, &error), "last committed");
    json_t *offsets = last.meta ? json_loads(last.meta, 0, NULL) : json_object();
    must(json_is_object(offsets), sink, "what it committed last has no offsets");
    chxa_free(last.meta);
    return offsets;
}

static void set_offset(json_t *offsets, int32_t partition, int64_t next)
{
    char key[16];
    snprintf(key, sizeof key, "%" PRId32, partition);
    must(json_object_set_new(offsets, key, json_integer(next)) == 0, "offsets", "no memory");
}

static int64_t get_offset(const json_t *offsets, int32_t partition)
{
    char key[16];
    snprintf(key, sizeof key, "%" PRId32, partition);
    const json_t *next = json_object_get(offsets, key);
    return next ? json_integer_value(next) : RD_KAFKA_OFFSET_BEGINNING;
}

/* ---- Kafka ---- */

static rd_kafka_t *consumer_new(const char *brokers, const char *group)
{
    char why[512];
    const char *const settings[][2] = {
        {"bootstrap.servers", brokers},
        {"group.id", group}, /* the library wants one; it is not used */
        {"enable.auto.commit", "false"},
        {"auto.offset.reset",
         "error"}, /* our offset is gone from the topic: stop, lose nothing silently */
        {"isolation.level", "read_committed"},
    };
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        must(rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why) ==
                 RD_KAFKA_CONF_OK,
             settings[i][0], why);
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    must(consumer, "consumer", why);
    rd_kafka_poll_set_consumer(consumer);
    return consumer;
}

/* Takes all partitions of the topic, from the offsets on. */
static void assign(rd_kafka_t *consumer, const char *name, const json_t *offsets)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(consumer, name, NULL);
    must(topic, name, "cannot be used");
    rd_kafka_resp_err_t failed = rd_kafka_metadata(consumer, 0, topic, &metadata, 30000);
    must(!failed, name, rd_kafka_err2str(failed));
    must(metadata->topic_cnt == 1 && metadata->topics[0].partition_cnt > 0, name, "no such topic");
    int n = metadata->topics[0].partition_cnt;
    rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(n);
    for (int i = 0; i < n; i++) {
        int32_t partition = metadata->topics[0].partitions[i].id;
        rd_kafka_topic_partition_list_add(all, name, partition)->offset =
            get_offset(offsets, partition);
    }
    failed = rd_kafka_assign(consumer, all);
    must(!failed, name, rd_kafka_err2str(failed));
    rd_kafka_topic_partition_list_destroy(all);
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(topic);
}

/* ---- the sink ---- */

/* One message, one row. True: there was one. */
static bool copy_row(struct chxa_sink *sink, rd_kafka_t *consumer, json_t *offsets)
{
    rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 50);
    bool row = message && !message->err;
    if (row) {
        char place[64];
        int length = snprintf(place, sizeof place, "%" PRId32 "\t%" PRId64 "\t", message->partition,
                              message->offset);
        char *text = malloc((size_t)length + message->len + 1);
        must(text, "row", "no memory");
        memcpy(text, place, (size_t)length);
        memcpy(text + length, message->payload, message->len);
        text[(size_t)length + message->len] = '\n';
        check(chxa_sink_write(sink, text, (size_t)length + message->len + 1, 1, &error), "write");
        free(text);
        set_offset(offsets, message->partition, message->offset + 1);
    } else if (message) {
        /* A broker that is away comes back; an offset that is gone does not. */
        must(message->err != RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET, "consumer",
             rd_kafka_message_errstr(message));
        fprintf(stderr, "consumer: %s\n", rd_kafka_message_errstr(message));
    }
    if (message)
        rd_kafka_message_destroy(message);
    return row;
}

/* Rows and offsets, in one commit. The sink's state is not kept: what it would name is in the offsets, or is rolled back. */
static void commit(struct chxa_sink *sink, uint64_t checkpoint, const json_t *offsets)
{
    void *state;
    size_t state_bytes;
    char *meta = json_dumps(offsets, JSON_COMPACT);
    must(meta, "offsets", "no memory");
    check(chxa_sink_snapshot(sink, checkpoint, meta, &state, &state_bytes, &error), "snapshot");
    check(chxa_sink_notify_complete(sink, checkpoint, &error), "commit");
    chxa_free(state);
    free(meta);
}

static struct chxa_sink *sink_open(struct chxa_client *client, char **argv)
{
    struct chxa_sink_options options;
    struct chxa_sink *sink;
    chxa_sink_options_init(&options);
    options.name = argv[2];
    options.stream.query = argv[3];
    check(chxa_sink_open(client, &options, NULL, 0, &sink, &error), "open");
    return sink;
}

static struct chxa_client *client_open(const char *url)
{
    struct chxa_client_options options;
    struct chxa_client *client;
    chxa_client_options_init(&options);
    options.urls = &url;
    options.n_urls = 1;
    check(chxa_client_open(&options, &client, &error), "client");
    return client;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: kafka_sink URL SINK INSERT BROKERS TOPIC [ROWS [MS]]\n");
        return 64;
    }
    uint64_t rows_max = argc > 6 ? strtoull(argv[6], NULL, 10) : 100000;
    int64_t age_max_ms = argc > 7 ? strtoll(argv[7], NULL, 10) : 5000;
    signal(SIGTERM, stop);
    signal(SIGINT, stop);

    /* In this order: once the sink is open, nothing that an earlier start left can be committed any more. */
    struct chxa_client *client = client_open(argv[1]);
    struct chxa_sink *sink = sink_open(client, argv);
    json_t *offsets = load_offsets(client, argv[2]);
    rd_kafka_t *consumer = consumer_new(argv[4], argv[2]);
    assign(consumer, argv[5], offsets);
    printf("reading from %s\n", argv[5]);
    fflush(stdout);

    uint64_t checkpoint = 0, rows = 0;
    int64_t since_ms = now_ms();
    while (!stopping || rows) {
        rows += copy_row(sink, consumer, offsets);
        if (rows < rows_max && now_ms() - since_ms < age_max_ms && !stopping)
            continue;
        if (rows)
            commit(sink, ++checkpoint, offsets);
        rows = 0;
        since_ms = now_ms();
    }

    check(chxa_sink_close(sink, &error), "close");
    rd_kafka_consumer_close(consumer);
    rd_kafka_destroy(consumer);
    json_decref(offsets);
    chxa_client_close(client);
    printf("%" PRIu64 " checkpoints\n", checkpoint);
    return 0;
}
