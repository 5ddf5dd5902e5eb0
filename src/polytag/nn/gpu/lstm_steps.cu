// All steps of both directions of a BiLSTM layer, forward and backward. The recurrent weights stay in registers.
//
// A cluster of blocks has 8 * TILES documents of one direction; each of its blocks has 64 hidden units. After every step the
// blocks exchange through each other's shared memory. Forward, every block sends its new states to all others. Backward, every
// block multiplies the gradients of its own gates, and sends each other block the sums for that block's units.
//
// HIDDEN (128 or 256) and TILES (1 or 2) are options of the compiler. A thread has one unit and two neighbouring documents of
// every tile, with all four gates: that is the layout of the results of mma.m16n8k16 if the gates of a unit are 8 rows apart.
// Steps go through a text in the direction's own order. Past the end of a text, state and cell do not change.

typedef unsigned short u16;
typedef unsigned int u32;

constexpr int SLICE = 64;               // hidden units of a block
constexpr int BLOCKS = HIDDEN / SLICE;  // blocks of a cluster
constexpr int DOCS = 8 * TILES;         // documents of a cluster
constexpr int GATES = 4 * SLICE;        // gates of a block
constexpr int ROWS = HIDDEN / 128;      // backward: tiles of 16 units of a warp
constexpr int EDGE = 8;                 // unused numbers at the end of a row, against bank conflicts

// -- numbers of 16 bits -------------------------------------------------------------------------------------------------

__device__ __forceinline__ float half_to_float(u32 bits) {
  float found;
  asm("{ .reg .b16 low; cvt.u16.u32 low, %1; cvt.f32.f16 %0, low; }" : "=f"(found) : "r"(bits & 0xffff));
  return found;
}

__device__ __forceinline__ u32 two_halves(float low, float high) {
  u32 found;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
  return found;
}

__device__ __forceinline__ u32 two_bfloats(float low, float high) {
  u32 found;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
  return found;
}

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

__device__ __forceinline__ float bent(float x) { return 2.0f * sigmoid(2.0f * x) - 1.0f; }  // tanh

// -- matrix products ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 shared_address(const void* place) { return (u32)__cvta_generic_to_shared(place); }

__device__ __forceinline__ void load_columns(u32 (&found)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(found[0]), "=r"(found[1]), "=r"(found[2]), "=r"(found[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void add_product_of_halves(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void add_product_of_bfloats(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// -- the cluster --------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 address_in(u32 block, u32 address) {
  u32 found;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(found) : "r"(address), "r"(block));
  return found;
}

__device__ __forceinline__ void send(u32 address, u32 value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void send(u32 address, float first, float second) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(first), "f"(second) : "memory");
}

__device__ __forceinline__ void arrive() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void wait() {
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// -- places of a thread -------------------------------------------------------------------------------------------------

struct Thread {
  int lane, warp, slice, side, unit, pair;
  int document[TILES];  // the first of two
  int words[TILES][2];  // lengths of the two texts; 0 outside of the batch

  __device__ __forceinline__ Thread(const int* lengths, int batch) {
    lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    slice = blockIdx.x, side = blockIdx.z;
    unit = 8 * warp + lane / 4, pair = 2 * (lane % 4);
    for (int n = 0; n < TILES; n++) {
      document[n] = blockIdx.y * DOCS + 8 * n + pair;
      for (int d = 0; d < 2; d++) words[n][d] = document[n] + d < batch ? lengths[document[n] + d] : 0;
    }
  }

  // The index of this thread's unit in (length, batch, 2, HIDDEN) at a step that is inside of the text.
  __device__ __forceinline__ size_t at(int n, int d, int step, int batch) const {
    const int word = side ? words[n][d] - 1 - step : step;
    return (((size_t)word * batch + document[n] + d) * 2 + side) * HIDDEN + slice * SLICE + unit;
  }
};

// -- forward ------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void load_gates(uint2 (&found)[TILES][2], const u16* gates, const Thread& me, int step, int batch) {
  for (int n = 0; n < TILES; n++)
    for (int d = 0; d < 2; d++)
      found[n][d] = step < me.words[n][d] ? *(const uint2*)(gates + 4 * me.at(n, d, step, batch)) : make_uint2(0, 0);
}

// gates: (length, batch, 2, HIDDEN, 4) fp16, before activation, without the share of the states; weights: (2, 4, HIDDEN, HIDDEN)
// fp16; states: (length, batch, 2, HIDDEN) fp16, not written for padding; cells: the same in float32; active: as gates, after
// activation; last_states and last_cells: (batch, 2, HIDDEN) float32.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(256, 1)
forward_steps(const u16* gates, const u16* weights, const int* lengths, u16* states, float* cells, u16* active,
              float* last_states, float* last_cells, int length, int batch) {
  __shared__ __align__(16) u16 shown[2][DOCS][HIDDEN + EDGE];
  const Thread me(lengths, batch);
  const int lane = me.lane;

  u32 weight[HIDDEN / 16][2][4];
  for (int k = 0; k < HIDDEN / 16; k++)
    for (int m = 0; m < 2; m++)
      for (int part = 0; part < 4; part++) {
        const int gate = 2 * m + part % 2, before = 16 * k + me.pair + 8 * (part / 2);
        const size_t row = (size_t)(me.side * 4 + gate) * HIDDEN + me.slice * SLICE + me.unit;
        weight[k][m][part] = *(const u32*)(weights + row * HIDDEN + before);
      }

  for (int at = threadIdx.x; at < DOCS * (HIDDEN + EDGE); at += 256) (&shown[0][0][0])[at] = 0;
  const int odd = (lane / 4) % 2;  // of two neighbouring units, the even one sends the first document, the odd one the second
  const int first = me.slice * SLICE + me.unit - odd;
  u32 target[BLOCKS];
  for (u32 block = 0; block < BLOCKS; block++) target[block] = address_in(block, shared_address(&shown[0][me.pair + odd][first]));
  const u32 source = shared_address(&shown[0][lane % 8][8 * (lane / 8)]);
  constexpr u32 other = sizeof(shown[0]), tile = sizeof(shown[0][0]) * 8;

  float cell[TILES][2] = {}, state[TILES][2] = {};
  uint2 now[TILES][2], next[TILES][2];
  load_gates(now, gates, me, 0, batch);
  arrive();
  wait();
  for (int step = 0; step < length; step++) {
    load_gates(next, gates, me, step + 1, batch);
    float sum[TILES][2][2][4] = {};
    const u32 from = source + (step % 2) * other;
#pragma unroll
    for (int k = 0; k < HIDDEN / 32; k++)
#pragma unroll
      for (int n = 0; n < TILES; n++) {
        u32 b[4];
        load_columns(b, from + n * tile + k * 32 * sizeof(u16));
        for (int m = 0; m < 2; m++) add_product_of_halves(sum[n][m][0], weight[2 * k][m], b[0], b[1]);
        for (int m = 0; m < 2; m++) add_product_of_halves(sum[n][m][1], weight[2 * k + 1][m], b[2], b[3]);
      }
    u32 sent[TILES];
    uint2 kept[TILES][2];
    for (int n = 0; n < TILES; n++) {
      for (int d = 0; d < 2; d++) {
        const float enter = sigmoid(sum[n][0][0][d] + sum[n][0][1][d] + half_to_float(now[n][d].x));
        const float forget = sigmoid(sum[n][0][0][2 + d] + sum[n][0][1][2 + d] + half_to_float(now[n][d].x >> 16));
        const float fresh = bent(sum[n][1][0][d] + sum[n][1][1][d] + half_to_float(now[n][d].y));
        const float leave = sigmoid(sum[n][1][0][2 + d] + sum[n][1][1][2 + d] + half_to_float(now[n][d].y >> 16));
        kept[n][d] = make_uint2(two_halves(enter, forget), two_halves(fresh, leave));
        if (step < me.words[n][d]) {
          cell[n][d] = forget * cell[n][d] + enter * fresh;
          state[n][d] = leave * bent(cell[n][d]);
        }
      }
      const float got = __shfl_xor_sync(0xffffffff, odd ? state[n][0] : state[n][1], 4);
      sent[n] = odd ? two_halves(got, state[n][1]) : two_halves(state[n][0], got);
      for (int block = 0; block < BLOCKS; block++) send(target[block] + ((step + 1) % 2) * other + n * tile, sent[n]);
    }
    arrive();
    for (int n = 0; n < TILES; n++)
      for (int d = 0; d < 2; d++)
        if (step < me.words[n][d]) {
          const size_t at = me.at(n, d, step, batch);
          if (d == odd) *(u32*)(states + at - odd) = sent[n];
          cells[at] = cell[n][d];
          *(uint2*)(active + 4 * at) = kept[n][d];
          now[n][d] = next[n][d];
        }
    wait();
  }
  for (int n = 0; n < TILES; n++)
    for (int d = 0; d < 2; d++)
      if (me.document[n] + d < batch) {
        const size_t at = ((size_t)(me.document[n] + d) * 2 + me.side) * HIDDEN + me.slice * SLICE + me.unit;
        last_states[at] = state[n][d];
        last_cells[at] = cell[n][d];
      }
}

// -- backward -----------------------------------------------------------------------------------------------------------

struct Kept {  // what a step needs of the forward pass, and the gradients of its states
  uint2 active[TILES][2];
  float cell[TILES][2], gradient[TILES][2];
};

__device__ __forceinline__ void load_step(Kept& found, const u16* active, const float* cells, const u16* gradients,
                                          const Thread& me, int step, int batch) {
  for (int n = 0; n < TILES; n++)
    for (int d = 0; d < 2; d++) {
      const bool inside = step >= 0 && step < me.words[n][d];
      const size_t at = inside ? me.at(n, d, step, batch) : 0;
      found.active[n][d] = inside ? *(const uint2*)(active + 4 * at) : make_uint2(0, 0);
      found.cell[n][d] = inside ? cells[at] : 0.0f;
      found.gradient[n][d] = inside ? half_to_float(gradients[at]) : 0.0f;
    }
}

// gradients: those of the states (length, batch, 2, HIDDEN) fp16; to_states and to_cells: those of the last states and cells
// (batch, 2, HIDDEN) float32; weights: (2, HIDDEN, HIDDEN, 4) bf16, the unit after a gate, then the gate's unit and kind;
// inner: the gradients of the gates before activation (length, batch, 2, HIDDEN, 4) bf16, not written for padding.
extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(256, 1)
backward_steps(const u16* gradients, const float* to_states, const float* to_cells, const u16* weights, const int* lengths,
               const float* cells, const u16* active, u16* inner, int length, int batch) {
  __shared__ __align__(16) u16 inside[DOCS][GATES + EDGE];
  __shared__ __align__(16) float sums[2][BLOCKS][SLICE][DOCS];
  const Thread me(lengths, batch);
  const int lane = me.lane;

  u32 weight[GATES / 16][ROWS][4];
  for (int k = 0; k < GATES / 16; k++)
    for (int m = 0; m < ROWS; m++)
      for (int part = 0; part < 4; part++) {
        const int after = (me.warp * ROWS + m) * 16 + lane / 4 + 8 * (part % 2);
        const int gate = me.slice * GATES + 16 * k + me.pair + 8 * (part / 2);
        weight[k][m][part] = *(const u32*)(weights + (size_t)(me.side * HIDDEN + after) * 4 * HIDDEN + gate);
      }

  for (int at = threadIdx.x; at < BLOCKS * SLICE * DOCS; at += 256) (&sums[0][0][0][0])[at] = 0.0f;
  const int receiver = me.warp * ROWS * 16;  // the first of the units whose sums this warp computes
  const u32 target =
      address_in(receiver / SLICE, shared_address(&sums[0][me.slice][receiver % SLICE + lane / 4][me.pair]));
  const u32 source = shared_address(&inside[lane % 8][8 * (lane / 8)]);
  constexpr u32 other = sizeof(sums[0]), unit = sizeof(sums[0][0][0]), tile = sizeof(inside[0]) * 8;

  float to_cell[TILES][2] = {}, held[TILES][2] = {};  // held: the gradient of the last state
  for (int n = 0; n < TILES; n++)
    for (int d = 0; d < 2; d++)
      if (me.document[n] + d < batch) {
        const size_t at = ((size_t)(me.document[n] + d) * 2 + me.side) * HIDDEN + me.slice * SLICE + me.unit;
        to_cell[n][d] = to_cells[at];
        held[n][d] = to_states[at];
      }
  Kept now, next;
  load_step(now, active, cells, gradients, me, length - 1, batch);
  arrive();
  wait();
  for (int step = length - 1; step >= 0; step--) {
    const int turn = (length - 1 - step) % 2;
    load_step(next, active, cells, gradients, me, step - 1, batch);
    for (int n = 0; n < TILES; n++)
      for (int d = 0; d < 2; d++) {
        uint2 found = make_uint2(0, 0);
        if (step < me.words[n][d]) {
          const uint2 kept = now.active[n][d];
          const float enter = half_to_float(kept.x), forget = half_to_float(kept.x >> 16);
          const float fresh = half_to_float(kept.y), leave = half_to_float(kept.y >> 16);
          const float out = bent(now.cell[n][d]);
          float to_state = now.gradient[n][d];
          for (int block = 0; block < BLOCKS; block++) to_state += sums[turn][block][me.unit][8 * n + me.pair + d];
          if (step == me.words[n][d] - 1) to_state += held[n][d];
          const float through = to_cell[n][d] + to_state * leave * (1 - out * out);
          found = make_uint2(two_bfloats(through * fresh * enter * (1 - enter), through * next.cell[n][d] * forget * (1 - forget)),
                             two_bfloats(through * enter * (1 - fresh * fresh), to_state * out * leave * (1 - leave)));
          to_cell[n][d] = through * forget;
          *(uint2*)(inner + 4 * me.at(n, d, step, batch)) = found;
        }
        *(uint2*)&inside[8 * n + me.pair + d][4 * me.unit] = found;
      }
    now = next;
    if (step == 0) break;
    __syncthreads();
    float sum[TILES][ROWS][2][4] = {};
#pragma unroll
    for (int k = 0; k < GATES / 32; k++)
#pragma unroll
      for (int n = 0; n < TILES; n++) {
        u32 b[4];
        load_columns(b, source + n * tile + k * 32 * sizeof(u16));
        for (int m = 0; m < ROWS; m++) add_product_of_bfloats(sum[n][m][0], weight[2 * k][m], b[0], b[1]);
        for (int m = 0; m < ROWS; m++) add_product_of_bfloats(sum[n][m][1], weight[2 * k + 1][m], b[2], b[3]);
      }
    for (int n = 0; n < TILES; n++)
      for (int m = 0; m < ROWS; m++) {
        const u32 place = target + (1 - turn) * other + 16 * m * unit + 8 * n * sizeof(float);
        send(place, sum[n][m][0][0] + sum[n][m][1][0], sum[n][m][0][1] + sum[n][m][1][1]);
        send(place + 8 * unit, sum[n][m][0][2] + sum[n][m][1][2], sum[n][m][0][3] + sum[n][m][1][3]);
      }
    arrive();
    wait();
  }
}
