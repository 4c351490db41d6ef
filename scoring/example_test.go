package scoring_test

import (
	"fmt"

	"kvladder/scoring"
)

// The published unpatched ladder: seven requests fail in the arm alone, and the connector
// never supplied a byte. The pin is named and the path is not.
func ExampleJudge() {
	c := scoring.Columns{
		P: scoring.Yes, A: scoring.Yes, H: scoring.Yes, V: scoring.No, K: scoring.Yes,
		F: scoring.Yes, E: scoring.No, ArmOnly: 7,
	}
	v := scoring.Judge(c)
	fmt.Println(v.Row, v.Word, v.Exit())

	c.F, c.ArmOnly = scoring.No, 1 // one request is a suspicion
	v = scoring.Judge(c)
	fmt.Println(v.Row, v.Word, v.Exit())

	c.ArmOnly = 0 // and nothing at all is not clean while nobody knows that the path ran
	v = scoring.Judge(c)
	fmt.Println(v.Row, v.Word, v.Sub, v.Exit())
	// Output:
	// 8 CORRUPTION_ATTRIBUTED 1
	// 10 SUSPECT_UNCONFIRMED 2
	// 13 NOT_EXERCISED UNPROVEN 2
}
