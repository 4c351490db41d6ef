package climb

import "net"

// freePort asks the system for a port on the loopback address. Between the answer and the
// engine's own bind somebody else may take it; the engine then fails to start and says so.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
