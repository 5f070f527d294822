/* A libnvidia-ml.so.1 without a GPU: the real bindings load it and ask it, a scenario file says what it answers.
 *
 * The file is named by NVML_STUB_SCENARIO and read anew at every call, so that a test can break a GPU while it is asked.
 * A line is "GPU KEY VALUE"; GPU is an index or "*". The last line that fits counts. Keys:
 *
 *   gpus 8             how many there are              init 9            what nvmlInit returns
 *   lost 1             every call returns 15           fails:CALL 3      this call returns 3
 *   hangs:CALL 1       this call never returns         xid 79            an Xid, delivered once
 *   links 18           how many NVLinks it has         process 4242      a compute process
 *   and every value by the name that `value` is asked for below: temperature, power, dbe_volatile, …
 *
 * Built with -DOLD_DRIVER it lacks what a driver of 2019 lacks. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned long long u64;
typedef struct { unsigned index; } gpu_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { u64 total, free, used; } memory_t;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { gpu_t *device; u64 type, data; unsigned gpu_instance, compute_instance; } event_t;
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process_t;
typedef struct {
    uint32_t field, scope; int64_t at, latency; int type, result; union { double d; unsigned u; u64 ull; } value;
} field_t;

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, TOO_SMALL = 7, TIMED_OUT = 10, LOST = 15 };

static gpu_t gpus[64];
static long delivered; /* lines with an Xid that were handed out */

static u64 value(int gpu, const char *key, u64 otherwise) {
    char line[256], who[32], name[128];
    FILE *file = fopen(getenv("NVML_STUB_SCENARIO") ? getenv("NVML_STUB_SCENARIO") : "", "r");
    u64 read;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%31s %127s %llu", who, name, &read) == 3 && !strcmp(name, key)
            && (!strcmp(who, "*") || atoi(who) == gpu))
            otherwise = read;
    if (file) fclose(file);
    return otherwise;
}

static int asked(gpu_t *gpu, const char *call) {
    char key[160];
    int index = gpu ? (int)gpu->index : -1;
    snprintf(key, sizeof key, "hangs:%s", call);
    while (value(index, key, 0)) sleep(1);
    if (gpu && value(index, "lost", 0)) return LOST;
    snprintf(key, sizeof key, "fails:%s", call);
    return (int)value(index, key, OK);
}

static unsigned bus_of(unsigned index) { return 0x18 + index * 0x10; }

#define ASKED(call) do { int result_ = asked(gpu, call); if (result_) return result_; } while (0)
#define NUMBER(call, type, key, otherwise) \
    int call(gpu_t *gpu, type *out) { ASKED(#call); *out = (type)value((int)gpu->index, key, otherwise); return OK; }
#define TEXT(call, format, ...) \
    int call(gpu_t *gpu, char *out, unsigned size) { \
        ASKED(#call); snprintf(out, size, format, __VA_ARGS__); return OK; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return asked(NULL, "nvmlInitWithFlags") ?: (int)value(-1, "init", OK); }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)value(-1, "gpus", 8); return asked(NULL, "nvmlDeviceGetCount_v2"); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu_t **gpu) {
    gpus[index].index = index;
    *gpu = &gpus[index];
    return asked(*gpu, "nvmlDeviceGetHandleByIndex_v2");
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) { snprintf(out, size, "550.54.15"); return OK; }

TEXT(nvmlDeviceGetUUID, "GPU-00000000-0000-0000-0000-0000000000%02x", gpu->index)
TEXT(nvmlDeviceGetName, "NVIDIA H100 80GB HBM3%s", "")
TEXT(nvmlDeviceGetSerial, "16530000%02u", gpu->index)
TEXT(nvmlDeviceGetVbiosVersion, "96.00.74.00.%02u", gpu->index)

int nvmlDeviceGetPciInfo_v3(gpu_t *gpu, pci_t *out) {
    ASKED("nvmlDeviceGetPciInfo_v3");
    out->bus = bus_of(gpu->index);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return OK;
}

NUMBER(nvmlDeviceGetMinorNumber, unsigned, "minor", gpu->index)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, "power", 70050)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, "power_limit", 700000)
NUMBER(nvmlDeviceGetPowerState, unsigned, "pstate", 0)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, "pcie_generation", 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, "pcie_width", 16)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, "pcie_generation_max", 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, "pcie_width_max", 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, "pcie_replays", 0)
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, "throttle", 0)
#ifndef OLD_DRIVER
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, u64, "throttle", 0)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, u64, "energy", 5000000000000ULL)
#endif

int nvmlDeviceGetUtilizationRates(gpu_t *gpu, utilization_t *out) {
    ASKED("nvmlDeviceGetUtilizationRates");
    out->gpu = (unsigned)value((int)gpu->index, "utilization", 97);
    out->memory = (unsigned)value((int)gpu->index, "memory_utilization", 41);
    return OK;
}
#define RESERVED (480ULL << 20)  // the driver's own, which the first form counts as used
int nvmlDeviceGetMemoryInfo(gpu_t *gpu, memory_t *out) {
    ASKED("nvmlDeviceGetMemoryInfo");
    out->total = 85520809984ULL;
    out->used = value((int)gpu->index, "memory_used", 64ULL << 30) + RESERVED;
    out->free = out->total - out->used;
    return OK;
}
#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(gpu_t *gpu, memory_v2_t *out) {
    ASKED("nvmlDeviceGetMemoryInfo_v2");
    out->total = 85520809984ULL;
    out->reserved = RESERVED;
    out->used = value((int)gpu->index, "memory_used", 64ULL << 30);
    out->free = out->total - out->reserved - out->used;
    return OK;
}
#endif
int nvmlDeviceGetTemperature(gpu_t *gpu, int sensor, unsigned *out) {
    ASKED("nvmlDeviceGetTemperature");
    (void)sensor;
    *out = (unsigned)value((int)gpu->index, "temperature", 41);
    return OK;
}
int nvmlDeviceGetClockInfo(gpu_t *gpu, int type, unsigned *out) {
    ASKED("nvmlDeviceGetClockInfo");
    *out = (unsigned)value((int)gpu->index, type == 1 ? "sm_clock" : "memory_clock", type == 1 ? 1980 : 2619);
    return OK;
}
int nvmlDeviceGetTotalEccErrors(gpu_t *gpu, int type, int counter, u64 *out) {
    static const char *keys[2][2] = {{"sbe_volatile", "sbe_aggregate"}, {"dbe_volatile", "dbe_aggregate"}};
    ASKED("nvmlDeviceGetTotalEccErrors");
    *out = value((int)gpu->index, keys[type][counter], 0);
    return OK;
}

#ifndef OLD_DRIVER
int nvmlDeviceGetRemappedRows(gpu_t *gpu, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ASKED("nvmlDeviceGetRemappedRows");
    *corrected = (unsigned)value((int)gpu->index, "remapped_correctable", 0);
    *uncorrected = (unsigned)value((int)gpu->index, "remapped_uncorrectable", 0);
    *pending = (unsigned)value((int)gpu->index, "remap_pending", 0);
    *failed = (unsigned)value((int)gpu->index, "remap_failed", 0);
    return OK;
}
int nvmlDeviceGetFieldValues(gpu_t *gpu, int count, field_t *fields) {
    char key[32];
    ASKED("nvmlDeviceGetFieldValues");
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "field:%u", fields[i].field);
        fields[i].value.ull = value((int)gpu->index, key, ~0ULL);
        fields[i].result = fields[i].value.ull == ~0ULL ? UNSUPPORTED : OK;
        fields[i].type = 3;
    }
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(gpu_t *gpu, unsigned *count, process_t *out) {
    ASKED("nvmlDeviceGetComputeRunningProcesses_v3");
    unsigned room = *count, pid = (unsigned)value((int)gpu->index, "process", 0);
    *count = pid != 0;
    if (!pid) return OK;
    if (room < 1) return TOO_SMALL;
    out[0] = (process_t){pid, 64ULL << 30, ~0U, ~0U};
    return OK;
}
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : code == UNSUPPORTED ? "Not Supported" : "Unknown Error"; }
#endif

int nvmlDeviceGetNvLinkState(gpu_t *gpu, unsigned link, unsigned *out) {
    ASKED("nvmlDeviceGetNvLinkState");
    if (link >= value((int)gpu->index, "links", 18)) return INVALID;
    *out = link != value((int)gpu->index, "link_down", 999);
    return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(gpu_t *gpu, unsigned link, int counter, u64 *out) {
    static const char *keys[] = {"nvlink_replay", "nvlink_recovery", "nvlink_crc_flit", "nvlink_crc_data", "nvlink_ecc"};
    ASKED("nvmlDeviceGetNvLinkErrorCounter");
    (void)link;
    *out = value((int)gpu->index, keys[counter], 0);
    return OK;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(gpu_t *gpu, unsigned link, pci_t *out) {
    ASKED("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x05 + link % 4);
    return OK;
}

int nvmlEventSetCreate(void **set) { *set = &delivered; return asked(NULL, "nvmlEventSetCreate"); }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(gpu_t *gpu, u64 types, void *set) { (void)types; (void)set; ASKED("nvmlDeviceRegisterEvents"); return OK; }
int nvmlEventSetWait_v2(void *set, event_t *out, unsigned milliseconds) {
    char line[256], name[128];
    int gpu;
    u64 code;
    long seen = 0;
    FILE *file = fopen(getenv("NVML_STUB_SCENARIO") ? getenv("NVML_STUB_SCENARIO") : "", "r");
    (void)set;
    (void)milliseconds;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "%d %127s %llu", &gpu, name, &code) == 3 && !strcmp(name, "xid") && seen++ == delivered) {
            delivered++;
            fclose(file);
            *out = (event_t){&gpus[gpu], 0x8, code, ~0U, ~0U};
            return OK;
        }
    if (file) fclose(file);
    return TIMED_OUT;
}
