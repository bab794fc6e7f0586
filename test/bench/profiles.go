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

// flags make the operator serve profiles.
func (p *profiles) flags() []string {
	if p == nil {
		return nil
	}
	return []string{"--pprof-bind-address", p.address}
}

// take profiles the CPU from now on for ten seconds, unless the load is the floor, and the
// heap in the end.
func (p *profiles) take(l load) func() {
	if p == nil || l.bare {
		return func() {}
	}
	p.taken++
	name := filepath.Join(p.dir, fmt.Sprintf("%03d-%dx%d", p.taken, l.groups, l.size))
	done := make(chan struct{})
	go func() {
		p.fetch("profile?seconds=10", name+"-cpu.pb.gz")
		close(done)
	}()
	return func() {
		<-done
		p.fetch("heap", name+"-heap.pb.gz")
	}
}

// fetch waits for an operator that starts.
func (p *profiles) fetch(what, path string) {
	var err error
	for range 50 {
		var answer *http.Response
		if answer, err = http.Get("http://" + p.address + "/debug/pprof/" + what); err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		var text []byte
		text, err = io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
		}
		break
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
	}
}
