/* SPDX-License-Identifier: Apache-2.0
 *
 * A Kafka for tests: librdkafka's mock cluster in a process of its own, with one topic.
 *
 *   kafka_mock TOPIC PARTITIONS
 *
 * Prints "bootstraps <addresses>". Each line "N" of its input makes N messages, one partition after the other, and is
 * answered "produced <total>" when they are there. Ends with its input.
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "kafka_mock: %s\n", what);
        exit(1);
    }
}

static rd_kafka_t *producer_new(const char *brokers)
{
    char why[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (brokers)
        must(rd_kafka_conf_set(conf, "bootstrap.servers", brokers, why, sizeof why) ==
                 RD_KAFKA_CONF_OK,
             why);
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    must(producer != NULL, why);
    return producer;
}

int main(int argc, char **argv)
{
    must(argc == 3, "usage: kafka_mock TOPIC PARTITIONS");
    int partitions = (int)strtol(argv[2], NULL, 10);
    rd_kafka_t *host = producer_new(NULL);
    rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(host, 1);
    must(cluster != NULL, "no cluster");
    must(!rd_kafka_mock_topic_create(cluster, argv[1], partitions, 1), "no topic");
    const char *brokers = rd_kafka_mock_cluster_bootstraps(cluster);
    rd_kafka_t *producer = producer_new(brokers);
    printf("bootstraps %s\n", brokers);
    fflush(stdout);

    char line[64], text[64];
    long total = 0;
    while (fgets(line, sizeof line, stdin)) {
        for (long n = strtol(line, NULL, 10); n > 0; n--) {
            int length = snprintf(text, sizeof text, "message %ld", total);
            rd_kafka_resp_err_t failed =
                rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(argv[1]),
                                  RD_KAFKA_V_PARTITION((int)(total % partitions)),
                                  RD_KAFKA_V_VALUE(text, (size_t)length),
                                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
            must(!failed, rd_kafka_err2str(failed));
            total++;
        }
        must(!rd_kafka_flush(producer, 20000), "not all were delivered");
        printf("produced %ld\n", total);
        fflush(stdout);
    }
    rd_kafka_destroy(producer);
    rd_kafka_mock_cluster_destroy(cluster);
    rd_kafka_destroy(host);
    return 0;
}
