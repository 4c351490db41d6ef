package launch

// ending is how a process ended, once it has: exit and err are set before done is closed, and
// nobody reads them earlier.
type ending struct {
	done chan struct{}
	exit *int
	err  error
}

func newEnding() ending { return ending{done: make(chan struct{})} }

// Done is closed when the process has ended.
func (e *ending) Done() <-chan struct{} { return e.done }

// Err is nil while the process lives, and when it ended with exit status 0.
func (e *ending) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

// Exit is nil while the process lives, and where no status is known.
func (e *ending) Exit() *int {
	select {
	case <-e.done:
		return e.exit
	default:
		return nil
	}
}
