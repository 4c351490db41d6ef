package metrics

import (
	"errors"
	"testing"

	"kvladder/probes"
	"kvladder/probes/probetest"
)

func TestProbe(t *testing.T) {
	srv := probetest.Start().
		Route("/metrics", probetest.Body("text/plain; version=0.0.4", snapshot(t, "metrics.txt").Raw)).
		Route("/off", probetest.Status(501, "text/plain", "start with --metrics"))
	defer srv.Close()
	var got []probes.Record
	emit := func(r probes.Record) error { got = append(got, r); return nil }
	e := probes.Endpoint{URL: srv.URL + "/"}
	if err := probes.Observe(t.Context(), e, nil, emit, Probe{Phase: "before", Pass: 1, Roles: roles}, Probe{Path: "/off", Roles: roles}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Kind != probes.KindSample || got[0].Sample.Error != "" || len(got[0].Sample.Values) != 6 || got[0].Sample.Source != "/metrics" || got[0].Sample.Phase != "before" {
		t.Fatalf("%+v", got)
	}
	if s := got[1].Sample; s.Error == "" || s.Source != "/off" || s.Values != nil {
		t.Errorf("a scrape that failed is recorded as %+v", s)
	}
	full := errors.New("disk full")
	if err := (Probe{}).Observe(t.Context(), e, nil, func(probes.Record) error { return full }); err != full {
		t.Errorf("%v: a record that was not written must end the observation", err)
	}
}
