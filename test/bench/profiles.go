package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// profiles are taken of the operator while it works. A nil one takes none.
type profiles struct {
	dir, address string
	taken        int
}

func profilesInto(dir string, port int) (*profiles, error) {
	if dir == "" {
		return nil, nil
	}
	return &profiles{dir: dir, address: fmt.Sprintf("127.0.0.1:%d", port)}, os.MkdirAll(dir, 0o755)
}

// flags have the operator serve profiles.
func (p *profiles) flags() []string {
	if p == nil {
		return nil
	}
	return []string{"--pprof-bind-address", p.address}
}

// take profiles the CPU from now on for ten seconds, unless the load is none of the
// operator's, and has the heap put beside it in the end.
func (p *profiles) take(l load) func() {
	if p == nil || l.bare {
		return func() {}
	}
	p.taken++
	name := filepath.Join(p.dir, fmt.Sprintf("%03d-%dx%d", p.taken, l.groups, l.size))
	cpu := make(chan error, 1)
	go func() { cpu <- p.fetch("profile?seconds=10", name+"-cpu.pb.gz") }()
	return func() {
		for _, err := range []error{<-cpu, p.fetch("heap", name+"-heap.pb.gz")} {
			if err != nil {
				fmt.Fprintln(os.Stderr, "profile:", err)
			}
		}
	}
}

func (p *profiles) fetch(what, path string) error {
	answer, err := p.ask(what)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := io.Copy(file, answer.Body); err != nil {
		return err
	}
	return file.Close()
}

// ask waits for an operator that is just being started.
func (p *profiles) ask(what string) (answer *http.Response, err error) {
	for range 50 {
		if answer, err = http.Get("http://" + p.address + "/debug/pprof/" + what); err == nil {
			return answer, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, err
}
