// Package launch holds the launchers: ways to have an engine's process.
//
//   - Local starts it on this machine, under a guardian.
//   - Container starts it in a container, by podman's or docker's command line.
//   - Slurm starts this program as a batch job, which climbs a chain where it is.
//   - Attach takes a URL of a server that somebody else started.
//
// An inference server is a family: it starts workers, they start helpers, and an
// accelerator stays with the last of them that lives. So a launcher ends families, not
// processes, and Local ends them even when this program is killed:
//
//  1. Launch starts this program again as `kvladder hold -- argv...`, the guardian, with a
//     pipe as its standard input (the leash) and another for its report.
//  2. The guardian adopts whatever the family abandons, starts argv in a process group of
//     its own, and reports the pid.
//  3. Stop sends SIGTERM to the group, waits, and then closes the leash.
//  4. The leash also closes when this program dies, by whatever signal: the kernel does
//     it. At its end the guardian kills the family and waits for the last of it.
//
// Containers and jobs are held by others, a runtime and a controller, and so they outlive this
// program. They carry a label instead, with the run folder and the user: the next climb in
// that folder ends what it finds, and `kvladder doctor --clean` ends what belongs to folders
// that nobody climbs in. What lacks the label is not even looked at.
package launch
