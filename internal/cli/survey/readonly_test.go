package survey

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// sent counts requests.
type sent int

func (s *sent) RoundTrip(*http.Request) (*http.Response, error) { *s++; return &http.Response{}, nil }

func TestOnlyReadsAreSent(t *testing.T) {
	for method, want := range map[string]sent{"GET": 1, "HEAD": 1, "POST": 0, "PUT": 0, "PATCH": 0, "DELETE": 0} {
		var got sent
		if _, err := (reader{&got}).RoundTrip(httptest.NewRequest(method, "https://host/", nil)); got != want || (err == nil) != (want == 1) {
			t.Errorf("%s: sent %d, %v", method, got, err)
		}
	}
}
