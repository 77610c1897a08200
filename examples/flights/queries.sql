-- Which airlines fly most from New York, and how late do they leave? Cancelled flights have no departure time.
SELECT carrier, COUNT(*) AS flights, AVG(dep_delay) AS mean_delay, MAX(dep_delay) AS worst_delay
FROM flights
WHERE dep_time > 0
GROUP BY carrier
ORDER BY flights DESC
LIMIT 5;

-- Which days had the most cancellations? (8 and 9 February: a blizzard.)
SELECT CAST(DATETRUNC('DAY', time_hour) AS TIMESTAMP) AS utc_day, COUNT(*) AS cancelled
FROM flights
WHERE dep_time IS NULL
GROUP BY CAST(DATETRUNC('DAY', time_hour) AS TIMESTAMP)
ORDER BY cancelled DESC
LIMIT 5;

-- How do delays grow over the day, at JFK?
SELECT hour, COUNT(*) AS flights, SUM(CASE WHEN dep_delay > 15 THEN 1 ELSE 0 END) AS late
FROM flights
WHERE origin = 'JFK' AND dep_time > 0
GROUP BY hour
HAVING COUNT(*) > 5000
ORDER BY hour
LIMIT 24;

-- One summer week, found by time: where did people go?
SELECT dest, COUNT(*) AS flights, DISTINCTCOUNT(carrier) AS airlines, MIN(distance) AS miles
FROM flights
WHERE time_hour BETWEEN '2013-07-01 00:00:00' AND '2013-07-07 23:00:00'
GROUP BY dest
ORDER BY flights DESC
LIMIT 5;

-- The longest delays of the year.
SELECT time_hour, carrier, flight, origin, dest, dep_delay
FROM flights
WHERE dep_delay > 900 AND dest NOT IN ('HNL')
ORDER BY dep_delay DESC
LIMIT 5;
