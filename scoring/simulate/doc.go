// Package simulate draws ladders from a world whose truth is known and lets the program's
// own scorer judge them, so that what the verdict table promises can be measured.
//
//  1. A World says how replies come about: how often a healthy reply is wrong by accident,
//     how much of a first token's log probability belongs to the process, to a document in
//     that process, and to the reply alone, and how often an arm is really corrupt.
//  2. New makes the Set and the Design of such a ladder: one control in several processes
//     and judged arms beside it, each arm a process of its own.
//  3. Climb draws the records of one ladder, has scoring.Assess judge them, climbs the
//     replicate of each arm that is suspect, as a run does, and judges again.
//  4. Repeat does that many times over and counts.
//
// Nothing of the decision is rebuilt here: the records are synthetic, the path from records
// to verdict is the one that every run takes.
package simulate
