// Who signed in by a personal link; null for the tenant's own token. The server decides what they may do: here only what
// it would refuse is not offered.

let who = null;

export function signIn(operator) {
  who = operator;
}

export const signedIn = () => who;
/** Whether they may change a snap or delete a video. */
export const mayChange = ({ operatorId }) => !who || who.mayChangeAll || operatorId === who.id;
