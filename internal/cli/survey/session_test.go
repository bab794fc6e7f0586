package survey

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
)

// answers is an API server that answers with an error, or with a code.
type answers struct {
	err  error
	code int
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code}, a.err
}

// An API server that is gone sends no event that would have anybody look again.
func TestWhoWatchesHearsThatNobodyAnswers(t *testing.T) {
	changed := make(chan struct{}, 1)
	s := &Session{Changed: changed, changed: changed}
	server := &answers{}
	wire := listener{server, s.note}
	ask := func(ctx context.Context, code int, err error) {
		server.code, server.err = code, err
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://there", nil)
		response, _ := wire.RoundTrip(request)
		if response.Body != nil {
			response.Body.Close()
		}
	}
	told := func() bool {
		select {
		case <-s.Changed:
			return true
		default:
			return false
		}
	}
	refused := errors.New("connection refused")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, step := range []struct {
		name  string
		ctx   context.Context
		code  int
		err   error
		told  bool
		wrong bool
	}{
		{"it answers", t.Context(), http.StatusOK, nil, false, false},
		{"nobody waits for the answer any more", gone, http.StatusOK, context.Canceled, false, false},
		{"a watch ends in good order", t.Context(), http.StatusOK, io.EOF, false, false},
		{"it is gone", t.Context(), http.StatusOK, refused, true, true},
		{"it is still gone", t.Context(), http.StatusOK, refused, false, true},
		{"another answers in its place that it is gone", t.Context(), http.StatusBadGateway, nil, false, true},
		{"it is back", t.Context(), http.StatusOK, nil, false, false},
		{"it is gone again", t.Context(), http.StatusOK, refused, true, true},
	} {
		ask(step.ctx, step.code, step.err)
		if got := told(); got != step.told {
			t.Errorf("%s: told %t", step.name, got)
		}
		if got := s.Trouble() != nil; got != step.wrong {
			t.Errorf("%s: got %v", step.name, s.Trouble())
		}
	}
}
