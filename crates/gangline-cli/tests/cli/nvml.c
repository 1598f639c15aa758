/* A stand-in for NVIDIA's management library, as far as gangline asks it: types and numbers are those of
 * NVIDIA's nvml.h, the GPUs are those of the environment.
 *
 * STAND_IN_INIT   what nvmlInit_v2 answers
 * STAND_IN_GPUS   a GPU on each line, in the order in which the driver counts them:
 *                 handle|answer|bus|name|uuid|total|used|busy|temperature|mig
 *
 * STAND_IN_ASKED  a file that grows by a byte each time a GPU is asked for its load
 *
 * `handle` is what nvmlDeviceGetHandleByIndex_v2 answers, `answer` what all questions about the GPU are answered
 * with, unless that is 0. What is negative is not supported. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

typedef int result;

typedef struct {
    int handle, answer, bus;
    char name[96], uuid[96];
    long long total, used;
    int busy, temperature, mig;
} gpu;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2;

typedef struct {
    unsigned gpu, memory;
} utilization;

_Static_assert(sizeof(pci_info) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(memory_v2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(utilization) == 8, "nvmlUtilization_t");

static gpu gpus[8];
static unsigned count;
static int users;

static int number(const char *variable) {
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

result nvmlInit_v2(void) {
    int code = number("STAND_IN_INIT");
    if (code != SUCCESS) return code;
    const char *text = getenv("STAND_IN_GPUS");
    for (count = 0; text && *text && count < 8; count++) {
        gpu *g = &gpus[count];
        if (sscanf(text, "%d|%d|%d|%95[^|]|%95[^|]|%lld|%lld|%d|%d|%d", &g->handle, &g->answer, &g->bus,
                   g->name, g->uuid, &g->total, &g->used, &g->busy, &g->temperature, &g->mig) != 10)
            return UNKNOWN;
        text = strchr(text, '\n');
        text = text ? text + 1 : "";
    }
    users++;
    return SUCCESS;
}

result nvmlShutdown(void) {
    return users-- > 0 ? SUCCESS : UNINITIALIZED;
}

static result copy(const char *text, char *into, unsigned length) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(into, text);
    return SUCCESS;
}

/* Whether the GPU can be asked for something. */
static result ask(const gpu *g, const void *into, long long value) {
    if (users < 1) return UNINITIALIZED;
    if (!g || !into) return INVALID_ARGUMENT;
    if (g->answer) return g->answer;
    return value < 0 ? NOT_SUPPORTED : SUCCESS;
}

result nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return users < 1 ? UNINITIALIZED : copy("580.65.06", version, length);
}

result nvmlDeviceGetCount_v2(unsigned *into) {
    if (users < 1) return UNINITIALIZED;
    *into = count;
    return SUCCESS;
}

result nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **into) {
    if (users < 1) return UNINITIALIZED;
    if (index >= count) return INVALID_ARGUMENT;
    if (gpus[index].handle) return gpus[index].handle;
    *into = &gpus[index];
    return SUCCESS;
}

result nvmlDeviceGetName(const gpu *g, char *into, unsigned length) {
    result answer = ask(g, into, 0);
    return answer ? answer : copy(g->name, into, length);
}

result nvmlDeviceGetUUID(const gpu *g, char *into, unsigned length) {
    result answer = ask(g, into, 0);
    return answer ? answer : copy(g->uuid, into, length);
}

result nvmlDeviceGetPciInfo_v3(const gpu *g, pci_info *into) {
    result answer = ask(g, into, g ? g->bus : 0);
    if (answer) return answer;
    *into = (pci_info){.bus = (unsigned)g->bus, .pci_device_id = 0x233010de};
    snprintf(into->bus_id_legacy, sizeof into->bus_id_legacy, "%04X:%02X:%02X.0", 0, g->bus, 0);
    snprintf(into->bus_id, sizeof into->bus_id, "%08X:%02X:%02X.0", 0, g->bus, 0);
    return SUCCESS;
}

result nvmlDeviceGetMemoryInfo_v2(const gpu *g, memory_v2 *into) {
    result answer = ask(g, into, g ? g->total : 0);
    if (answer) return answer;
    if (into->version != (sizeof *into | 2u << 24)) return ARGUMENT_VERSION_MISMATCH;
    into->total = (unsigned long long)g->total;
    into->used = (unsigned long long)g->used;
    into->reserved = 1;
    into->free = into->total - into->used;
    return SUCCESS;
}

result nvmlDeviceGetUtilizationRates(const gpu *g, utilization *into) {
    result answer = ask(g, into, g ? g->busy : 0);
    if (answer) return answer;
    /* Not the same, so that it would be seen if one was taken for the other. */
    *into = (utilization){.gpu = (unsigned)g->busy, .memory = 1};
    const char *asked = getenv("STAND_IN_ASKED");
    FILE *file = asked ? fopen(asked, "a") : NULL;
    if (file) {
        fputc('.', file);
        fclose(file);
    }
    return SUCCESS;
}

result nvmlDeviceGetTemperature(const gpu *g, int sensor, unsigned *into) {
    result answer = ask(g, into, g ? g->temperature : 0);
    if (answer) return answer;
    if (sensor != 0) return INVALID_ARGUMENT;
    *into = (unsigned)g->temperature;
    return SUCCESS;
}

result nvmlDeviceGetMigMode(const gpu *g, unsigned *current, unsigned *pending) {
    result answer = ask(g, current, g ? g->mig : 0);
    if (answer) return answer;
    *current = (unsigned)g->mig;
    *pending = 0;
    return SUCCESS;
}
