// Package armtest holds the conformance suites of the contracts in package arms.
//
//   - TestLauncher and TestAttached try a launcher with real processes.
//   - TestEngine tries an engine's mapping from pins to a command line and back.
//
// The processes are the test binary itself: a package that uses TestLauncher calls Main
// from its TestMain, and the binary started again with a verb in place of test flags is
// that verb's program.
package armtest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVerb is the first argument of a test binary that is to be a child.
const childVerb = "armtest-child"

// Main runs the tests, or the program of the verb in the first argument: one of
// programs, or the child that the suites launch.
func Main(m *testing.M, programs map[string]func(args []string) int) {
	if len(os.Args) > 1 {
		verb, args := os.Args[1], os.Args[2:]
		if verb == childVerb {
			os.Exit(child(args))
		}
		if run, ok := programs[verb]; ok {
			os.Exit(run(args))
		}
	}
	os.Exit(m.Run())
}

// Child is the command line of a child. What it does:
//
//	env              prints its environment, one variable a line, and ends
//	exit N           ends with status N
//	die              ends itself with SIGKILL
//	serve            prints "pid N", lives until SIGTERM, then prints "bye" and ends with 0
//	stubborn         the same, but ignores SIGTERM, SIGINT and SIGHUP
//	family           starts a serve and a stubborn child, and lives like serve
//	daemon           starts a stubborn child that leaves the process group and whose parent
//	                 ends at once, and lives like serve
//	abandon          does the same and ends at once with status 3
//	http PORT        answers on 127.0.0.1:PORT with the status 200, and lives like serve
//	complain         prints twenty lines and ends with status 5
func Child(what ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, childVerb}, what...)
}

// deadline bounds the life of every child, so that a failed test leaves none for long.
const deadline = 120 * time.Second

func child(args []string) int {
	time.AfterFunc(deadline, func() { os.Exit(9) })
	switch args[0] {
	case "env":
		env := os.Environ()
		slices.Sort(env)
		fmt.Println(strings.Join(env, "\n"))
		return 0
	case "exit":
		n, _ := strconv.Atoi(args[1])
		return n
	case "die":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("pid", os.Getpid())
		select {}
	case "family":
		begin(false, "serve")
		begin(false, "stubborn")
	case "daemon":
		begin(false, "fork")
	case "abandon":
		begin(false, "fork")
		return 3
	case "http":
		ln, err := net.Listen("tcp", "127.0.0.1:"+args[1])
		if err != nil {
			fmt.Println(err)
			return 1
		}
		go http.Serve(ln, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	case "complain":
		for i := range 20 {
			fmt.Printf("complaint %d: no such device\n", i+1)
		}
		return 5
	case "fork": // the first half of a daemon: starts the other half and leaves it
		begin(true, "stubborn")
		return 0
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	fmt.Println("pid", os.Getpid())
	<-term
	fmt.Println("bye")
	return 0
}

// begin starts a child of this child and waits for its first line, which it passes on: so
// the launcher's log names all pids, and a pid in the log is of a process set up. With
// session, the child leaves session and process group.
func begin(session bool, what string) {
	argv := Child(what)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		panic(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	fmt.Print(line)
}
