package draw

import "strings"

// vocabulary is what filler is made of: words that the embedded decoder's tokenizer, and
// most others, give one id when a space comes before them.
var vocabulary = strings.Fields(`
river stone bridge forest hill valley road field garden house window door table lamp paper letter book page
ink glass water rain snow wind cloud storm sun moon star light shadow morning evening night winter summer
autumn spring harbor ship boat sail rope anchor wave shore sand island cliff bird crow gull horse dog cat
sheep goat wolf bear fox deer fish tree leaf root branch bark seed grain bread salt honey apple pear plum wool
cloth thread needle hammer nail wheel cart barrel box coin map clock bell tower wall gate street market square
church mill farm barn fence path trail camp fire smoke ash coal iron silver copper gold wood brick clay dust
mud grass moss fern rose thorn old new small large tall short long quiet loud slow quick bright dark warm cold
dry wet deep high low soft hard sharp round flat empty full early late plain green red blue white black grey
brown walks runs stands sits turns moves falls rises opens closes carries holds brings takes leaves finds keeps
sees hears knows asks tells sings sleeps wakes waits works builds breaks mends burns grows drifts flows rests
`)
