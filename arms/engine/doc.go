// Package engine holds the engines: mappings from pins to a command line, and back to
// what a running server can prove of them.
//
//   - Testbed is the embedded engine, `kvladder testbed serve`.
//   - LlamaCpp is llama-server of llama.cpp.
//   - VLLM is `vllm serve`, with its connectors as stores.
//   - SGLang is sglang.launch_server, written by the book.
//   - OpenAI is any compatible server of somebody else.
//
// What only some of them can do (drop the store, fail a load, list loads, report the pool) is
// in optional interfaces of package arms; those of Testbed are in testbed_admin.go.
//
// What they share is in small parts: pins checks values before anything is started, the
// client asks servers small questions, Paged and Slots predict from geometry how much of
// each request a healthy engine takes from where.
package engine
