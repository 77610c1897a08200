// Asks a node by the npm package `pinot-client`; arguments: its folder, a controller or broker as host:port.
const { ConnectionFactory } = require(process.argv[2]);

async function main(address) {
  const told = {};
  const listed = ConnectionFactory.fromHostList([address]);
  const found = await ConnectionFactory.fromController(address);
  for (const [name, connection] of [['brokers', listed], ['controller', found]]) {
    const sql = 'select carrier, sum(distance) as miles from flights group by carrier order by miles desc limit 2';
    told[name] = (await connection.execute('flights', sql)).resultTable;
  }
  told.error = await listed.execute('flights', 'select altitude from flights').then(
    () => 'none', (error) => String(error));
  console.log(JSON.stringify(told));
}

main(process.argv[3]).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
