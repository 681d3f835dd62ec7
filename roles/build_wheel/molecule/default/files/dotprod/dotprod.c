#define PY_SSIZE_T_CLEAN
#include <Python.h>

#ifndef __AVX__
#error "CFLAGS did not arrive"
#endif

#ifndef FACTOR
#define FACTOR 3.0f /* unless a file beside the source says otherwise */
#endif

/* A loop that any compiler turns into the widest instructions it may use. */
static void scale(float *out, const float *in, float by, int n) {
    for (int i = 0; i < n; i++)
        out[i] = in[i] * by + out[i];
}

static PyObject *twice(PyObject *self, PyObject *arg) {
    float in[256], out[256] = {0};
    float value = (float)PyFloat_AsDouble(arg);
    for (int i = 0; i < 256; i++)
        in[i] = value;
    scale(out, in, FACTOR, 256);
    return PyFloat_FromDouble(out[255]);
}

static PyMethodDef methods[] = {{"twice", twice, METH_O, "Twice a number"}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "dotprod", NULL, -1, methods, 0, 0, 0, 0};

PyMODINIT_FUNC PyInit_dotprod(void) {
    return PyModule_Create(&module);
}
