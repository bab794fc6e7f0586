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

// podTemplateHash is the label in which a Deployment keeps a hash of its template.
const podTemplateHash = "pod-template-hash"

// hashLabels have values that end in a hash of a template. Who knows the rest of it could try values of a secret.
var hashLabels = []string{lwsv1.RevisionKey, appsv1.ControllerRevisionHashLabelKey, podTemplateHash}

// Learn collects the names of all objects, and the hashes of what will be redacted: those of revisions are made again
// from redacted content, others are replaced.
func (r *Redactor) Learn(objects []client.Object) {
	r.learning = true
	for _, object := range objects {
		r.Object(object)
	}
	r.learning = false
	for _, object := range objects {
		switch o := object.(type) {
		case *appsv1.ControllerRevision:
			r.rehash(revision.Key(o.Data.Raw), revision.Key(r.revisionData(o).Raw))
		case *lwsv1.LeaderWorkerSet:
			was, err := revision.Data(o)
			now, other := revision.Data(r.Object(o).(*lwsv1.LeaderWorkerSet))
			if err == nil && other == nil {
				r.rehash(revision.Key(was), revision.Key(now))
			}
		}
	}
	for _, object := range objects {
		r.replaceHashes(object)
	}
}

// LearnWanted replaces the fingerprint of a leader StatefulSet that its set wants, which is compared with one
// that an apply left.
func (r *Redactor) LearnWanted(wanted *appsv1.StatefulSet) {
	if wanted != nil {
		r.rehash(lws.Fingerprint(wanted), lws.Fingerprint(r.Object(wanted)))
	}
}

func (r *Redactor) rehash(was, now string) {
	if _, known := r.hashes[was]; !known {
		r.hashes[was] = now
	}
}

// safe are the words that Kubernetes makes of hashes, without vowels.
var safe = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5,10}$`)

const safeLetters = "bcdfghjklmnpqrstvwxz2456789"

// replaceHashes gives the hashes in an object's labels and status another value.
func (r *Redactor) replaceHashes(object client.Object) {
	var hashed []string
	for _, label := range hashLabels {
		hashed = append(hashed, object.GetLabels()[label])
	}
	switch o := object.(type) {
	case *appsv1.StatefulSet:
		hashed = append(hashed, o.Status.CurrentRevision, o.Status.UpdateRevision, o.Spec.Template.Labels[lwsv1.RevisionKey])
	case *appsv1.ControllerRevision:
		hashed = append(hashed, o.Name)
	}
	for _, value := range hashed {
		if word := value[strings.LastIndexByte(value, '-')+1:]; safe.MatchString(word) {
			r.rehash(word, r.safeToken(word))
		}
	}
}

// safeToken stands for a hash, and looks like one.
func (r *Redactor) safeToken(word string) string {
	var token strings.Builder
	for _, b := range r.sum(word)[:10] {
		token.WriteByte(safeLetters[int(b)%len(safeLetters)])
	}
	return token.String()
}

// revisionData is the redacted data of a revision. That of a set is encoded as a set's is. Other data is a token.
func (r *Redactor) revisionData(of *appsv1.ControllerRevision) runtime.RawExtension {
	restored, err := revision.Restore(&lwsv1.LeaderWorkerSet{}, of.Data.Raw)
	if err == nil {
		if encoded, err := revision.Data(r.Object(restored).(*lwsv1.LeaderWorkerSet)); err == nil {
			return runtime.RawExtension{Raw: encoded}
		}
	}
	token, _ := json.Marshal(map[string]string{"redacted": r.token(string(of.Data.Raw))})
	return runtime.RawExtension{Raw: token}
}
