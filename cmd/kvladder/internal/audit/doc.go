// Package audit reads evidence that somebody else published and says what in it proves
// nothing.
//
//  1. Open reads files: JSON, JSONL, documents one after another, literals and quotes as
//     Python prints them, prose around them, plain or gzip; and the text of an engine's
//     counters. What it had to overlook to read them is a note of the File.
//  2. A Lint looks through all files of an Evidence for one thing. Each lives in a file of
//     its own, with what it means (Explain), evidence that makes it fire (Fires) and
//     evidence so near to it that it must stay silent (Silent).
//  3. Look runs them all, and gives what they found with file, line and path.
//
// A finding is not a verdict on a server. It says that a sentence in the evidence cannot be
// relied on, whether or not it is true. Names of members are matched as people write them,
// since no two harnesses agree on a format: a lint that cannot tell stays silent.
package audit
