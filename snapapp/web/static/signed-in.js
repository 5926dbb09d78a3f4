// Who signed in by a personal link; null for the tenant's own token. The server decides what they may do: here only what
// it would refuse is not offered.

let who = null;

export function signIn(operator) {
  who = operator;
}

export const signedIn = () => who;
export const mayChange = (snap) => !who || who.mayChangeAll || snap.operatorId === who.id;
