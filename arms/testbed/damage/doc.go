// Package damage measures what each kind of damage to a stored cache does to the
// answers of the embedded engine's decoder. It is tests only; RESULTS.md keeps
// the tables of a full run and the command that prints them again.
//
//  1. A prompt holds keys, tags and, where windows are damaged, pins among
//     filler. It is computed once, with a snapshot of the recurrent state every
//     model.StateEvery tokens.
//  2. A case takes what a prefix hit of the prompt would bring, blocks and a
//     snapshot, damages it, and computes the rest of the prompt on top.
//  3. Questions are asked, greedily, of the damaged cache and of the healthy one.
//     A question is a victim if the positions that hold its digits and the stop
//     after them all lie in what was damaged, for the layer that serves its kind;
//     a bystander if none does; questions half inside are left out.
//  4. Per case, class and kind of question: how many answers were right to the
//     end, and d0, the absolute change of the log probability of the healthy
//     answer's first token. The case "clean" damages nothing, and its d0 has to
//     be exactly 0.
//
// The names of cases that begin with F are those of the faults in package fault.
package damage
