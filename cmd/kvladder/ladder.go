package main

import (
	"cmp"
	"os"
	"path/filepath"

	"kvladder/arms"
	"kvladder/prompts"
)

// resolved is a ladder file with everything that it names.
type resolved struct {
	ladder *arms.Ladder
	set    *prompts.Set
	engine arms.Engine
	plan   *arms.Plan
}

// resolve reads a ladder, opens its Set and expands it into a plan, for the launcher called
// by where there is one. It starts nothing.
func resolve(path string, by ...string) (*resolved, error) {
	l, err := arms.ReadLadder(path)
	if err != nil {
		return nil, err
	}
	for _, name := range by {
		l.Launcher = cmp.Or(name, l.Launcher)
	}
	eng, err := findEngine(l.Engine)
	if err != nil {
		return nil, &arms.FileError{File: path, What: err.Error()}
	}
	self, err := selfPath()
	if err != nil {
		return nil, err
	}
	launcher, err := findLauncher(l.Launcher, self)
	if err != nil {
		return nil, &arms.FileError{File: path, What: err.Error()}
	}
	l.LaunchBy(launcher)
	s, err := prompts.Open(l.SetPath())
	if err != nil {
		return nil, err
	}
	p, err := l.Resolve(s, eng)
	if err != nil {
		return nil, err
	}
	return &resolved{ladder: l, set: s, engine: eng, plan: p}, nil
}

// selfPath is the running binary, with links resolved, since the guardian and the embedded
// engine are this same program started again.
func selfPath() (string, error) {
	p, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(p)
}

// cacheDir holds engines and models that scripts have fetched: $KVLADDER_CACHE, else .cache
// in the working folder.
func cacheDir() (string, error) {
	if d := os.Getenv("KVLADDER_CACHE"); d != "" {
		return filepath.Abs(d)
	}
	return filepath.Abs(".cache")
}
