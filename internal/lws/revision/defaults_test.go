package revision_test

import (
	"fmt"
	"strings"
	"testing"

	"lockstep.dev/lockstep/internal/lws/revision"
)

// A revision is the same when nobody wrote the difference.
func TestSameMeaning(t *testing.T) {
	const base = `{"spec":{"leaderWorkerTemplate":{"$patch":"replace","restartPolicy":"None","size":4,"subGroupPolicy":{"subGroupPolicyType":"LeaderWorker","subGroupSize":2},"workerTemplate":{"metadata":{},"spec":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"TCP"}],"livenessProbe":{"grpc":{"port":1,"service":""}},"resources":{}}]}}},"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`
	tests := []struct {
		name, old, new string
		same           bool
	}{
		{"nothing", "", "", true},
		{"a policy that an older definition did not know", `"subGroupPolicyType":"LeaderWorker",`, ``, true},
		{"another policy", `"LeaderWorker"`, `"LeaderExcluded"`, false},
		{"a protocol filled in", `,"protocol":"TCP"`, ``, true},
		{"a service filled in", `,"service":""`, ``, true},
		{"the old word for no policy", `"restartPolicy":"None"`, `"restartPolicy":"Default"`, true},
		{"another size", `"size":4,`, ``, false},
		{"no network", `,"subdomainPolicy":"Shared"`, ``, true},
		{"a network that says nothing", `"subdomainPolicy":"Shared"`, `"subdomainPolicy":null`, true},
		{"another network", `"Shared"`, `"UniquePerReplica"`, false},
		{"what the API server would fill in, but somebody wrote", `"resources":{}`, `"resources":{},"terminationMessagePath":"/dev/termination-log"`, false},
		{"zero is not nothing", `"containers"`, `"terminationGracePeriodSeconds":0,"containers"`, false},
		{"a label called as a field is", `"metadata":{}`, `"metadata":{"labels":{"user":"admin"}}`, false},
		{"what is no document", base, `{`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changed := []byte(strings.Replace(base, tt.old, tt.new, 1))
			if got := revision.SameMeaning([]byte(base), changed); got != tt.same {
				t.Errorf("got %t for %s", got, changed)
			}
			if got := revision.SameMeaning(changed, []byte(base)); got != tt.same {
				t.Errorf("got %t the other way round", got)
			}
		})
	}
}

// A user may call a label as a field is called somewhere, and give it what is
// filled in there; and what is filled into one volume is written into another.
func TestWhatStandsElsewhereIsNeverFilledIn(t *testing.T) {
	tests := []struct{ in, name, value string }{
		{"labels", "user", `"admin"`},
		{"annotations", "service", `""`},
		{"annotations", "restartPolicy", `"Default"`},
		{"nodeSelector", "pool", `"rbd"`},
		{"matchLabels", "protocol", `"TCP"`},
		{"volumeAttributes", "fsType", `"ext4"`},
		{"csi", "fsType", `"xfs"`},
		{"azureDisk", "fsType", `"xfs"`},
		{"seLinuxOptions", "user", `"admin"`},
		{"volumeMounts", "readOnly", "false"},
	}
	for _, tt := range tests {
		const stored = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{%q:{"kept":"x"%s}}}}}`
		without, with := fmt.Sprintf(stored, tt.in, ""), fmt.Sprintf(stored, tt.in, fmt.Sprintf(",%q:%s", tt.name, tt.value))
		if revision.SameMeaning([]byte(without), []byte(with)) {
			t.Errorf("%s means the same as %s", with, without)
		}
	}
}
