package restart_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/restart"
)

// The note of an event fits one line whatever the names are. Those of usual lengths stay whole, and of long ones their
// ends stay.
func TestNotesOfLongNamesFit(t *testing.T) {
	long := strings.Repeat("abc.", 62) + "ab-17"
	for _, node := range []string{"", "gpu-7", long} {
		for _, container := range []string{"", "serve", strings.Repeat("c", 63)} {
			for _, reason := range []string{"OOMKilled", strings.Repeat("r", 63)} {
				for _, group := range []string{"7", "0123456789"} {
					for _, leader := range []string{"llama-7", long} {
						for _, pod := range []string{leader, leader + "-17"} {
							d := restart.Decision{Failure: restart.Failure{PodFailure: lwsv1.PodFailure{Pod: pod, Container: container, Reason: reason, Node: node}}}
							if container != "" {
								d.ExitCode = new(int32(-2147483648))
							}
							of := &corev1.Pod{}
							of.Name = leader
							note := d.Note(of, group)
							if n := utf8.RuneCountInString(note); n > 120 || !utf8.ValidString(note) {
								t.Errorf("%d characters: %s", n, note)
							}
							if role := map[bool]string{true: "Leader ", false: "Worker "}[pod == leader]; !strings.HasPrefix(note, role) {
								t.Errorf("not a %s: %s", role, note)
							}
							if !strings.Contains(note, "7 failed (") || !strings.Contains(note, "group "+group) {
								t.Errorf("the end of the name or the group is missing: %s", note)
							}
						}
					}
				}
			}
		}
	}
	usual := restart.Decision{Failure: restart.Failure{PodFailure: lwsv1.PodFailure{
		Pod: "llama-405b-12-3", Container: "serve", Reason: "OOMKilled", ExitCode: new(int32(137)), Node: "gpu-7.example.com",
	}}}
	leader := &corev1.Pod{}
	leader.Name = "llama-405b-12"
	note := usual.Note(leader, "12")
	for _, part := range []string{"llama-405b-12-3", "container serve", "OOMKilled", "exit code 137", "node gpu-7.example.com", "group 12"} {
		if !strings.Contains(note, part) {
			t.Errorf("%q lacks %q", note, part)
		}
	}
}
