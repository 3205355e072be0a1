// Package script is the language in which a node is asked about locks: the Lua scripts
// that run on the nodes (lua/), their operations and opcodes, how many operations become
// the arguments of one EVALSHA, and whether what a node answers can be an answer to them.
//
// Packages node (which sends operations), ballot and admission (which ask for them) use
// it. It sends nothing itself, keeps no state, and knows neither connections nor quorums.
package script
