package plane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"lockstep.dev/lockstep/local/internal/process"
)

// State is what is remembered of a cluster between commands.
//
//	(no file) ──up──► Running ──down──► not Running, no processes ──up──► …
//
// It is written after every start of a process, so that an up that is itself
// killed leaves nothing that a down does not find.
type State struct {
	Running   bool                           `json:"running"`
	Settings  Settings                       `json:"settings"`
	Ports     Ports                          `json:"ports"`
	Processes map[Component]process.Identity `json:"processes,omitempty"`
	// Killed are the components that a user ended on purpose.
	Killed []Component `json:"killed,omitempty"`
}

// loadState reads the state of a directory; found is false if there was never
// a cluster in it.
func loadState(l Layout) (state State, found bool, err error) {
	data, err := os.ReadFile(l.state())
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	if err != nil {
		return State{}, false, err
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return State{}, false, fmt.Errorf("%s: %w: remove the file if no cluster of this directory runs", l.state(), err)
	}
	return state, true, nil
}

// save replaces the file whole: a reader sees the old state or the new one.
func (s State) save(l Layout) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(l.state(), append(data, '\n'), 0o644)
}

// alive lists the components whose process still runs.
func (s State) alive() []Component {
	var alive []Component
	for _, c := range Components {
		if s.Processes[c].Alive() {
			alive = append(alive, c)
		}
	}
	return alive
}

func (s *State) started(c Component, id process.Identity) {
	if s.Processes == nil {
		s.Processes = map[Component]process.Identity{}
	}
	s.Processes[c] = id
	s.Killed = slices.DeleteFunc(s.Killed, func(k Component) bool { return k == c })
}

func (s *State) killed(c Component) {
	delete(s.Processes, c)
	if !slices.Contains(s.Killed, c) {
		s.Killed = append(s.Killed, c)
	}
}

func writeFile(path string, data []byte, mode fs.FileMode) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Chmod(mode), temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), path)
}
