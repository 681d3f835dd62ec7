// y += a * x on the first GPU. Each call says how CUDA ended, 0 for success.
#include <cuda_runtime.h>

namespace {

__global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

class Memory {  // on the GPU, freed where it goes out of scope
 public:
  explicit Memory(size_t bytes) { error = cudaMalloc(&data, bytes); }
  ~Memory() { cudaFree(data); }
  void *data = nullptr;
  cudaError_t error;
};

}  // namespace

#define CHECK(call) \
  if (cudaError_t error = (call)) return error

extern "C" int cuda_saxpy(int n, float a, const float *x, float *y) {
  size_t bytes = n * sizeof(float);
  Memory there_x(bytes), there_y(bytes);
  CHECK(there_x.error);
  CHECK(there_y.error);
  CHECK(cudaMemcpy(there_x.data, x, bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(there_y.data, y, bytes, cudaMemcpyHostToDevice));
  saxpy<<<(n + 255) / 256, 256>>>(n, a, static_cast<float *>(there_x.data),
                                  static_cast<float *>(there_y.data));
  CHECK(cudaGetLastError());
  return cudaMemcpy(y, there_y.data, bytes, cudaMemcpyDeviceToHost);
}

extern "C" const char *cuda_error(int error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}
