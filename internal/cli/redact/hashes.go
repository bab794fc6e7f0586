package redact

import (
	"encoding/json"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/revision"
)

// Learn collects the names of all objects, and the hashes of what will be redacted. Those of revisions are made
// again from redacted content, as are the fingerprints of leader StatefulSets that sets want: each is compared with
// one that an apply left. Other hashes become tokens.
func (r *Redactor) Learn(objects []client.Object, wanted ...*appsv1.StatefulSet) {
	for _, object := range objects {
		r.Object(object)
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.ControllerRevision:
			r.learnRevision(o.Data.Raw)
		case *lwsv1.LeaderWorkerSet:
			if encoded, err := revision.Data(o); err == nil {
				r.learnRevision(encoded)
			}
		}
	}
	for _, leaders := range wanted {
		redacted := &appsv1.StatefulSet{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.Object(leaders).Object, redacted); err == nil {
			r.hashes[lws.Fingerprint(leaders)] = lws.Fingerprint(redacted)
		}
	}
}

// learnRevision makes the key of a revision again, which is a hash of its data.
func (r *Redactor) learnRevision(encoded []byte) {
	of := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: encoded}}
	if redacted, err := json.Marshal(r.Object(of).Object["data"]); err == nil {
		r.hashes[revision.Key(encoded)] = revision.Key(redacted)
	}
}

// safe are the words that Kubernetes makes of hashes, without vowels.
var safe = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5,10}$`)

// learnHash has a token stand for the hash at the end of a name: who knows the rest of a template could try values of
// a secret in it.
func (r *Redactor) learnHash(value string) {
	word := value[strings.LastIndexByte(value, '-')+1:]
	if _, known := r.hashes[word]; !known && safe.MatchString(word) {
		r.hashes[word] = r.token(word)
	}
}
