package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// state is what a later call must know to end what this one started. The control
// plane keeps account of itself.
type state struct {
	Operator process `json:"operator"`
}

// place is the directory that a demo lives in.
type place struct{ dir string }

func (p place) cluster() string    { return filepath.Join(p.dir, "cluster") }
func (p place) kubeconfig() string { return filepath.Join(p.cluster(), "kubeconfig") }
func (p place) log() string        { return filepath.Join(p.dir, "operator.log") }
func (p place) state() string      { return filepath.Join(p.dir, "state.json") }

// lock keeps a second demo out of the directory until it is released.
func (p place) lock() (release func(), err error) {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another demo is at work in %s; wait for it, or interrupt it", p.dir)
	}
	return func() { file.Close() }, nil
}

// load returns what an earlier call left running; the zero value when none did.
func (p place) load() (s state, err error) {
	data, err := os.ReadFile(p.state())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%s: %w", p.state(), err)
	}
	return s, nil
}

func (p place) save(s state) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(p.state(), append(data, '\n'), 0o644)
}
