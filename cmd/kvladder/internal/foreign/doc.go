// Package foreign reads rows that somebody else measured and published, and turns them into
// what a run would have left: a Set, a Plan and the Records of a transcript.
//
//  1. Open reads one file, plain or gzip, and finds the arms in it (Arm): a list of rows,
//     a document with "rows", one with arms that hold rows, or one row a line.
//  2. Snapshots finds the texts of the engine's counters that lie beside the rows.
//  3. Build pairs the rows of all arms by request and makes the Set, the Plan and the
//     Records. Nothing that the rows claim about themselves is believed: whether a request
//     failed is decided again, from its text.
//  4. Decode reads the bytes of one row again, so that a verifier need not trust what Build
//     wrote beside them.
//
// # The format
//
// A row is a JSON object. Python's json module writes NaN, Infinity and -Infinity, which
// JSON has not: they are taken where a number may stand, and mean "not a number". Known
// members, older names after the newer ones:
//
//	request_id, id, prompt_id             which request; rows of two arms are paired by it
//	pass, phase                           and by this, where one id is asked in several passes
//	response_text, text, response, output the reply
//	response_tokens, tokens, output_tokens            its tokens, as texts
//	response_token_ids, output_token_ids, token_ids   and as ids, where they were kept
//	chosen_token_logprobs, token_logprobs             one log probability a token
//	finish_reason, usage, prompt_tokens               as the server said
//	error, http_status                                where the request got no reply
//	expected                              right answers by name: A1, A2 one value, A3 a list
//	                                      of integers, A4 diagnostic and never a failure
//	metric_delta                          counters over this request; where a member
//	                                      metric_delta_scope says anything but "this
//	                                      request" they are not this request's
//
// The two lists of tokens may also be texts that hold a list as Python prints it.
package foreign

// Dialect is the wire form of a Set whose replies are rows: Decode reads them.
const Dialect = "import"
