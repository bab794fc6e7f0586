package cli

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// replayExtension is an extension of the kubeconfig's context of a replayed report: the time at which its clock
// stands still. The clock belongs to the connection, so no object of a cluster can stop it.
const replayExtension = "lockstep.dev/replay"

// now is the time, or the moment of the report that is replayed.
func (o *options) now() time.Time {
	if o.at.IsZero() {
		return time.Now()
	}
	return o.at
}

// readClock reads whether the context of the kubeconfig is that of a replayed report.
func (o *options) readClock() error {
	config, err := o.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return noConfig(err)
	}
	name := config.CurrentContext
	if *o.flags.Context != "" {
		name = *o.flags.Context
	}
	context := config.Contexts[name]
	if context == nil {
		return nil
	}
	replay, ok := context.Extensions[replayExtension].(*runtime.Unknown)
	if !ok {
		return nil
	}
	var moment struct {
		At time.Time `json:"at"`
	}
	if err := json.Unmarshal(replay.Raw, &moment); err != nil {
		return fmt.Errorf("extension %s of context %q in the kubeconfig: %w", replayExtension, name, err)
	}
	o.at = moment.At
	return nil
}
